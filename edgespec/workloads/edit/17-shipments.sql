-- Parcels, the vans that carry them, and what the office asks every morning.

CREATE TABLE vans (
    van_id     INTEGER PRIMARY KEY,
    plate      TEXT NOT NULL UNIQUE,
    max_kg     INTEGER NOT NULL CHECK (max_kg > 0)
);

CREATE TABLE parcels (
    parcel_id  INTEGER PRIMARY KEY,
    receiver   TEXT NOT NULL,
    district   TEXT NOT NULL,
    weight_kg  REAL NOT NULL CHECK (weight_kg > 0),
    received   TEXT NOT NULL,
    van_id     INTEGER REFERENCES vans (van_id),
    delivered  TEXT
);

CREATE INDEX parcels_by_district ON parcels (district, delivered);

-- Parcels that have waited for more than three days.
SELECT parcel_id, receiver, district, received
FROM parcels
WHERE delivered IS NULL
  AND julianday('now') - julianday(received) > 3
ORDER BY received;

-- How full is each van?
SELECT v.plate,
       COUNT(p.parcel_id) AS parcels,
       COALESCE(SUM(p.weight_kg), 0) AS load_kg,
       v.max_kg
FROM vans v
LEFT JOIN parcels p ON p.van_id = v.van_id AND p.delivered IS NULL
GROUP BY v.van_id
ORDER BY load_kg DESC;

-- Districts with the most open parcels.
SELECT district, COUNT(*) AS open_parcels
FROM parcels
WHERE delivered IS NULL
GROUP BY district
ORDER BY open_parcels DESC
LIMIT 5;

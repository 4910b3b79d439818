-- Schema and reports of a lending library.

CREATE TABLE members (
    member_id   INTEGER PRIMARY KEY,
    full_name   TEXT NOT NULL,
    email       TEXT NOT NULL UNIQUE,
    joined_on   TEXT NOT NULL,
    is_blocked  INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE books (
    book_id     INTEGER PRIMARY KEY,
    title       TEXT NOT NULL,
    author      TEXT NOT NULL,
    shelf       TEXT NOT NULL,
    copies      INTEGER NOT NULL DEFAULT 1 CHECK (copies >= 0)
);

CREATE TABLE loans (
    loan_id     INTEGER PRIMARY KEY,
    member_id   INTEGER NOT NULL REFERENCES members (member_id),
    book_id     INTEGER NOT NULL REFERENCES books (book_id),
    lent_on     TEXT NOT NULL,
    due_on      TEXT NOT NULL,
    returned_on TEXT
);

CREATE INDEX loans_by_member ON loans (member_id, returned_on);
CREATE INDEX loans_by_book ON loans (book_id, returned_on);

-- Copies of each book that are on the shelf now.
CREATE VIEW available_books AS
SELECT
    b.book_id,
    b.title,
    b.author,
    b.shelf,
    b.copies - COUNT(l.loan_id) AS free_copies
FROM books AS b
LEFT JOIN loans AS l
    ON l.book_id = b.book_id
    AND l.returned_on IS NULL
GROUP BY b.book_id, b.title, b.author, b.shelf, b.copies;

-- Loans past their due day, with the days they are late.
CREATE VIEW overdue_loans AS
SELECT
    l.loan_id,
    m.full_name,
    m.email,
    b.title,
    l.due_on,
    CAST(julianday('now') - julianday(l.due_on) AS INTEGER) AS days_late
FROM loans AS l
JOIN members AS m ON m.member_id = l.member_id
JOIN books AS b ON b.book_id = l.book_id
WHERE l.returned_on IS NULL
    AND l.due_on < date('now');

-- Nobody who is blocked may borrow.
CREATE TRIGGER refuse_blocked_members
BEFORE INSERT ON loans
WHEN (SELECT is_blocked FROM members WHERE member_id = NEW.member_id) = 1
BEGIN
    SELECT RAISE(ABORT, 'member is blocked');
END;

INSERT INTO members (member_id, full_name, email, joined_on) VALUES
    (1, 'Ines Albrecht', 'ines@example.org', '2021-03-14'),
    (2, 'Tomasz Wren', 'tomasz@example.org', '2022-11-02'),
    (3, 'Priya Solberg', 'priya@example.org', '2023-06-27');

INSERT INTO books (book_id, title, author, shelf, copies) VALUES
    (1, 'Bridges of Ice', 'M. Farrow', 'A2', 3),
    (2, 'The Slow Orchard', 'L. Quint', 'B7', 1),
    (3, 'Knots for Beginners', 'S. Haldane', 'D1', 2);

-- The ten members who borrowed most in the last year.
SELECT
    m.full_name,
    COUNT(*) AS loan_count,
    MAX(l.lent_on) AS last_loan
FROM loans AS l
JOIN members AS m ON m.member_id = l.member_id
WHERE l.lent_on >= date('now', '-1 year')
GROUP BY m.member_id, m.full_name
ORDER BY loan_count DESC, m.full_name
LIMIT 10;

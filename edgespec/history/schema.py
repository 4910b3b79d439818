"""The tables, and how a database of an older version comes to have them."""

from __future__ import annotations

import sqlite3

APPLICATION = 0x45445350  # "EDSP": marks the file as ours

# One row per version: what turns the version before it into it. Rows are never changed once released, only added.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # created, updated: milliseconds since 1970, UTC. They are shown, never compared: clocks jump.
        # touched: order of the latest changes.  active: the first message of the branch in use.
        # imported: fingerprint of the document it came from.  deleted: may be undone until it is purged.
        """CREATE TABLE conversation (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL,
            model TEXT NOT NULL,
            system TEXT NOT NULL,
            params TEXT NOT NULL,
            raw INTEGER NOT NULL,
            created INTEGER NOT NULL,
            updated INTEGER NOT NULL,
            touched INTEGER NOT NULL,
            active INTEGER,
            imported TEXT,
            deleted INTEGER NOT NULL DEFAULT 0
        )""",
        "CREATE INDEX conversation_touched ON conversation (touched)",
        # active: the child on the branch in use.  finish_reason: NULL until a reply is finished.
        # result: JSON of a finished reply.
        """CREATE TABLE message (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation INTEGER NOT NULL REFERENCES conversation (id),
            parent INTEGER REFERENCES message (id),
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            model TEXT NOT NULL,
            created INTEGER NOT NULL,
            finish_reason TEXT,
            result TEXT,
            active INTEGER
        )""",
        "CREATE INDEX message_conversation ON message (conversation, parent)",
        "CREATE INDEX message_parent ON message (parent)",
        # Text of replies that are not finished, in the order of `number`: what was new at each checkpoint.
        """CREATE TABLE partial (
            message INTEGER NOT NULL REFERENCES message (id),
            number INTEGER NOT NULL,
            text TEXT NOT NULL,
            PRIMARY KEY (message, number)
        ) WITHOUT ROWID""",
        # Tokens and rounds of replies (details.py), in the same pieces.
        """CREATE TABLE detail (
            message INTEGER NOT NULL REFERENCES message (id),
            number INTEGER NOT NULL,
            data BLOB NOT NULL,
            PRIMARY KEY (message, number)
        ) WITHOUT ROWID""",
        # Trigrams find parts of words, and words of languages that put no spaces between them.
        "CREATE VIRTUAL TABLE search USING fts5 (text, content='message', content_rowid='id', tokenize='trigram')",
        """CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
            INSERT INTO search (rowid, text) VALUES (new.id, new.text);
        END""",
        """CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
            INSERT INTO search (search, rowid, text) VALUES ('delete', old.id, old.text);
        END""",
        """CREATE TRIGGER message_changed AFTER UPDATE OF text ON message BEGIN
            INSERT INTO search (search, rowid, text) VALUES ('delete', old.id, old.text);
            INSERT INTO search (rowid, text) VALUES (new.id, new.text);
        END""",
    ),
)


def version(connection: sqlite3.Connection) -> int:
    """The version of a database; 0 for a new one."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def belongs(connection: sqlite3.Connection) -> bool:
    """True for a history of ours, and for a database without any table."""
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION:
        return True
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database up to date, each version in a transaction of its own; none is made where nothing is to do."""
    while version(connection) < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = version(connection)  # another program may have been faster
            if done < len(MIGRATIONS):
                for statement in MIGRATIONS[done]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {done + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

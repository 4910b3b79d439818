"""The SQLite file: who may read it, how it is opened, and what its errors mean.

Write-ahead log, synchronous=FULL: a commit that has returned survives a kill and a power cut. Writers of all threads
and processes wait for each other; readers wait for nobody.
"""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .. import paths
from ..errors import BadRequestError, HistoryDamagedError, HistoryError
from .schema import MIGRATIONS, belongs, migrate, version

MEMORY = Path(":memory:")
BUSY_S = 30.0  # how long a writer waits for others
OLDEST = (3, 35, 0)  # the first SQLite with all that is used here: trigrams, RETURNING

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BESIDE = ("-wal", "-shm")  # files that belong to a database


def history_file() -> Path:
    """Where the history lies: a file for the user alone, in a folder for the user alone."""
    return paths.home() / "history" / "history.db"


class Database:
    """An open history file. Safe to use from several threads; several objects and processes may have one file open.

    path: MEMORY is a database that never touches a disk and ends with this object.  Raises HistoryError,
    HistoryDamagedError where the file was not usable and has been put aside.
    """

    def __init__(self, path: Path) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise HistoryError(
                f"this Python has SQLite {sqlite3.sqlite_version}, and the history needs "
                f"{'.'.join(map(str, OLDEST))} or newer; use a newer Python, or go without saving"
            )
        self.path = path
        self._inode = 0
        self._write_turn, self._read_turn = threading.RLock(), threading.RLock()
        self._writing = 0  # the thread inside a write transaction
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        with self._named_errors():
            if path != MEMORY:
                try:
                    _make_private(path)
                    self._inode = path.stat().st_ino
                except OSError as error:
                    raise HistoryError(f"the history {path} cannot be opened: {error.strerror or error}") from error
            self._writer = self._opened()

    @property
    def closed(self) -> bool:
        return self._writer is None

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it or none. Inside another one of this thread, a part of that."""
        with self._named_errors(), self._write_turn:  # in this order: a damaged file is put aside with no turn taken
            connection = self._open(self._writer)
            if self._writing:
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            self._writing = threading.get_ident()
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                self._writing = 0
                if self._writer is not None and connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One state of the database, whatever others write meanwhile; with its own changes inside write()."""
        if self._writing == threading.get_ident():
            with self._named_errors():
                yield self._open(self._writer)
            return
        if self.path == MEMORY:  # no other connection can see it
            with self._named_errors(), self._write_turn:
                yield self._open(self._writer)
            return
        with self._named_errors(), self._read_turn:
            self._open(self._writer)
            if self._reader is None:
                self._reader = _connect(self.path)
                self._reader.execute("PRAGMA query_only = ON")
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                if self._reader is not None and self._reader.in_transaction:
                    self._reader.execute("ROLLBACK")

    def tidy(self) -> None:
        """Overwrite on the disk what was deleted: in the index, and in the log."""
        with self.write() as connection:
            connection.execute("INSERT INTO search (search) VALUES ('optimize')")
        with self._named_errors(), self._write_turn:
            self._open(self._writer).execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; what was committed is in it."""
        with self._write_turn, self._read_turn:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def _open(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise HistoryError(f"the history {self.path} is closed; open it again")
        return connection

    def _opened(self) -> sqlite3.Connection:
        """A connection for writing, to a database that is up to date."""
        deadline = time.monotonic() + BUSY_S
        while True:
            connection = _connect(self.path)
            try:
                self._check(connection)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")
                migrate(connection)
                return connection
            except sqlite3.OperationalError as error:
                # Two programs that make the file at once: SQLite tells one of them to come back, without waiting.
                connection.close()
                if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            except BaseException:
                connection.close()
                raise

    def _check(self, connection: sqlite3.Connection) -> None:
        found = version(connection)
        if not belongs(connection):
            raise HistoryError(f"{self.path} is a database of another program; move it away")
        if found > len(MIGRATIONS):
            raise HistoryError(
                f"the history {self.path} is of version {found}, written by a newer EdgeSpec; this one knows versions "
                f"up to {len(MIGRATIONS)}; update EdgeSpec, or set EDGESPEC_HOME to another folder"
            )

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OverflowError:
            raise BadRequestError("there is no conversation or message of that number; it is too large") from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code == sqlite3.SQLITE_CORRUPT_VTAB:
                raise self._index_anew() from error
            if code & 0xFF in _DAMAGED:
                raise self._put_aside(error) from error
            if code & 0xFF in _BUSY:
                what = f"is in use by another program, for more than {BUSY_S:.0f} seconds; close that one"
            elif code & 0xFF == sqlite3.SQLITE_FULL:
                what = "cannot grow: the disk is full; free some space"
            else:
                what = f"cannot be used: {error}"
            raise HistoryError(f"the history {self.path} {what}") from error

    def _index_anew(self) -> HistoryError:
        """The search index is damaged; it holds nothing that the messages do not."""
        try:
            with self._write_turn:
                self._open(self._writer).execute("INSERT INTO search (search) VALUES ('rebuild')")
        except sqlite3.Error as error:
            return self._put_aside(error)
        return HistoryError(f"the search index of {self.path} was damaged and has been built anew; try again")

    def _put_aside(self, error: sqlite3.Error) -> HistoryDamagedError:
        """Rename a damaged database, so that nothing of it is lost and a new one can begin."""
        self.close()
        place = next(p for n in range(1, 1000) if not (p := Path(f"{self.path}.damaged-{n}")).exists())
        try:
            if self.path.stat().st_ino == self._inode:  # else another program has done it already
                for suffix in _BESIDE:
                    with contextlib.suppress(FileNotFoundError):
                        Path(f"{self.path}{suffix}").rename(f"{place}{suffix}")
                self.path.rename(place)
        except FileNotFoundError:
            pass
        except OSError as refused:
            return HistoryDamagedError(
                f"the history {self.path} is damaged ({error}) and cannot be put aside "
                f"({refused.strerror}); move it away"
            )
        return HistoryDamagedError(
            f"the history was damaged ({error}) and now lies aside as {place}; a new one begins with the next start"
        )


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are begun by hand; a lock of ours guards the connection.
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def _make_private(path: Path) -> None:
    """Make the file if it is missing. It is never opened here: closing it would drop SQLite's locks on it."""
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path == history_file() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)
    with contextlib.suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        path.chmod(0o600)

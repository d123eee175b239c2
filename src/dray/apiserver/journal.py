"""Durability: every change in a SQLite database, written by one thread, many changes per commit.

Always true: what ``durable`` is told is on disk (WAL with ``synchronous=FULL``), whatever happens to the process or the
machine afterwards; a database holds all changes up to its revision and none after it; its files are readable by their owner
only. The caller waits for nothing: changes that arrive while a commit runs share the next one. When the disk does not take a
commit, that commit and everything appended after it never happened: ``failed`` is told, and nothing is taken until the
owner has put its own state right and calls ``resume``.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

_SCHEMA: Final = """
CREATE TABLE objects (tab TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
                                    PRIMARY KEY (tab, key)) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
_FORMAT: Final = 1
_ADVICE: Final = "restore a copy, or move it away to start with an empty cluster"

Change = tuple[int, str, str, bytes | None]


class JournalError(Exception):
    """The data directory cannot be used. The administrator must act; the message says how."""


class Journal:
    """The log of a ``Store``. ``durable(revision)`` and ``failed(error)`` are called from the writer thread."""

    def __init__(self, directory: Path, durable: Callable[[int], None], failed: Callable[[Exception], None]) -> None:
        self._durable, self._failed = durable, failed
        self._lock = _locked(directory)
        self._path = directory / "dray.db"
        self._pending: list[Change] = []
        self._wake = threading.Condition()
        self._closing = self._failing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def load(self) -> tuple[int, list[tuple[str, str, int, bytes]]]:
        """The revision and all rows of the database; creates it when it is not there."""
        _private(self._path)
        try:
            if not self._path.exists():
                _create(self._path)
            with closing(_connect(self._path)) as database:
                _check(database, self._path)
                found = database.execute("SELECT value FROM state WHERE name = 'revision'").fetchone()
                rows = database.execute("SELECT tab, key, revision, value FROM objects").fetchall()
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{self._path} is not a database of Dray, or damaged ({error}); {_ADVICE}") from error
        return (found[0] if found else 0), rows

    def start(self) -> None:
        self._thread.start()

    def append(self, revision: int, table: str, key: str, value: bytes | None) -> None:
        with self._wake:
            if self._failing:
                return
            self._pending.append((revision, table, key, value))
            if len(self._pending) == 1:
                self._wake.notify()

    def resume(self) -> None:
        """What was lost is forgotten by its owner, too: changes are taken again."""
        with self._wake:
            self._failing = False

    def close(self) -> None:
        """Writes what is pending, then ends the thread and gives the directory free."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._lock)

    def _run(self) -> None:
        database: sqlite3.Connection | None = None
        try:
            while batch := self._next():
                try:
                    database = database or _connect(self._path)
                    _write(database, batch)
                except Exception as error:  # whatever it is, these changes are not on disk
                    self._lose(database, error)
                else:
                    self._durable(batch[-1][0])
        finally:
            if database is not None:
                database.close()

    def _lose(self, database: sqlite3.Connection | None, error: Exception) -> None:
        if database is not None and database.in_transaction:
            with suppress(sqlite3.Error):  # it is gone either way: what is not committed is not in the database
                database.execute("ROLLBACK")
        with self._wake:
            self._failing = True
            self._pending = []
        self._failed(error)

    def _next(self) -> list[Change]:
        with self._wake:
            while not self._pending and not self._closing:
                self._wake.wait()
            batch, self._pending = self._pending, []
            return batch


def _write(database: sqlite3.Connection, batch: list[Change]) -> None:
    last = {(table, key): (revision, value) for revision, table, key, value in batch}
    gone = [key for key, (_, value) in last.items() if value is None]
    put = [(table, key, revision, value) for (table, key), (revision, value) in last.items() if value is not None]
    database.execute("BEGIN IMMEDIATE")
    if gone:
        database.executemany("DELETE FROM objects WHERE tab = ? AND key = ?", gone)
    if put:
        database.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", put)
    database.execute("INSERT OR REPLACE INTO state VALUES ('revision', ?)", (batch[-1][0],))
    database.execute("COMMIT")


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA wal_autocheckpoint = 4000")
    return database


def _create(path: Path) -> None:
    """An empty database, which appears under its name when it is whole: a file that is not is never one of ours."""
    draft = path.with_name(".dray.db.new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(draft, isolation_level=None)) as database:
        database.executescript(_SCHEMA)
        database.execute("INSERT INTO state VALUES ('format', ?)", (_FORMAT,))
    os.replace(draft, path)


def _check(database: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"objects", "state"} <= tables:
        what = f"holds {', '.join(sorted(tables)[:5])}" if tables else "is empty"
        raise JournalError(f"{path} is not a database of Dray: it {what}; {_ADVICE}")
    found = database.execute("SELECT value FROM state WHERE name = 'format'").fetchone()
    if found is None or found[0] != _FORMAT:
        shown = found[0] if found else "none"
        raise JournalError(f"{path} has format {shown}, this Dray writes {_FORMAT}; use the version that wrote it")


def _private(path: Path) -> None:
    """Files of earlier versions were made as the folder's rules said; they hold secrets."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).chmod(0o600)


def _locked(directory: Path) -> int:
    """One process per directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise JournalError(f"{directory} is in use by another Dray; stop it or choose another --data directory") from error
    return handle

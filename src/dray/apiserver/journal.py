"""Durability: every change in a SQLite database, written by one thread, many changes per commit.

Always true: what ``durable`` is told is on disk (WAL with ``synchronous=FULL``), whatever happens to the process or the
machine afterwards; a database holds all changes up to its revision and none after it. The caller waits for nothing:
changes that arrive while a commit runs share the next one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS objects (tab TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
                                    PRIMARY KEY (tab, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
_FORMAT: Final = 1

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
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def load(self) -> tuple[int, list[tuple[str, str, int, bytes]]]:
        """The revision and all rows of the database; creates it when it is not there."""
        try:
            with closing(_connect(self._path)) as database:
                _prepare(database, self._path)
                found = database.execute("SELECT value FROM state WHERE name = 'revision'").fetchone()
                rows = database.execute("SELECT tab, key, revision, value FROM objects").fetchall()
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{self._path} is not a database of Dray ({error}); move it away to start empty") from error
        return (found[0] if found else 0), rows

    def start(self) -> None:
        self._thread.start()

    def append(self, revision: int, table: str, key: str, value: bytes | None) -> None:
        with self._wake:
            self._pending.append((revision, table, key, value))
            if len(self._pending) == 1:
                self._wake.notify()

    def close(self) -> None:
        """Writes what is pending, then ends the thread and gives the directory free."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._lock)

    def _run(self) -> None:
        database = _connect(self._path)
        try:
            while batch := self._next():
                _write(database, batch)
                self._durable(batch[-1][0])
        except Exception as error:  # whatever it is, nothing can be promised any more: the server must say so
            self._failed(error)
        finally:
            database.close()

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


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    database.executescript(_SCHEMA)
    found = database.execute("SELECT value FROM state WHERE name = 'format'").fetchone()
    if found is None:
        database.execute("INSERT INTO state VALUES ('format', ?)", (_FORMAT,))
    elif found[0] != _FORMAT:
        raise JournalError(f"{path} has format {found[0]}, this Dray writes {_FORMAT}; use the version that wrote it")


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

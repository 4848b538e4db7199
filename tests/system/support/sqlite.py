# SPDX-License-Identifier: Apache-2.0
"""What an SQLite store suffers from others who have its file."""
import contextlib
import sqlite3


@contextlib.contextmanager
def opened(url):
    with contextlib.closing(sqlite3.connect(url.removeprefix('sqlite:'), isolation_level=None)) as db:
        yield db


@contextlib.contextmanager
def locked(url):
    """Somebody else writes to the database."""
    with opened(url) as db:
        db.execute('BEGIN IMMEDIATE')
        yield
        db.execute('ROLLBACK')


@contextlib.contextmanager
def refused(url, what):
    """Each INSERT (it claims), or each UPDATE (it ends what was claimed), fails, and at once."""
    with opened(url) as db:
        db.execute(f"CREATE TRIGGER refused BEFORE {what} ON semel_command BEGIN SELECT RAISE(ABORT, 'no'); END")
    yield
    with opened(url) as db:
        db.execute('DROP TRIGGER refused')

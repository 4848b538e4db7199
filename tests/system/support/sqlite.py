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
def no_record(url):
    """What runs cannot be ended: each try fails, and at once."""
    with opened(url) as db:
        db.execute("CREATE TRIGGER no_record BEFORE UPDATE ON semel_command BEGIN SELECT RAISE(ABORT, 'no'); END")
        yield
        db.execute('DROP TRIGGER no_record')

# SPDX-License-Identifier: Apache-2.0
"""Looking at a store from beside: its rows through `semel keys`, its audit through SQL."""
import json
import sqlite3
import subprocess
import urllib.parse

import psycopg2

from .wait import wait_until


class Store:
    """One store, by its URL."""

    def __init__(self, build, url):
        self.build, self.url = build, url

    def keys(self, *args):
        return subprocess.run([self.build.semel, 'keys', *args, '--db', self.url], text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60)

    def row(self, key):
        """`keys show KEY --json`, or None when there is none."""
        r = self.keys('show', key, '--json')
        if r.returncode == 65:
            return None
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    def rows(self, *args):
        r = self.keys('list', '--json', *args)
        assert r.returncode == 0, r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]

    def wait_state(self, key, *states):
        return wait_until(lambda: (r := self.row(key)) and r['state'] in states and r, 20,
                          f'{key} in {states}')

    def wait_lease_over(self, key):
        return wait_until(lambda: (r := self.row(key)) and r['lease_over'] and r, 20,
                          f'the lease of {key} over')

    # -- SQL -------------------------------------------------------------------------------
    def sql(self, sqlite, postgres, args=()):
        """Run the statement of this dialect, with `?` for each parameter; returns the rows."""
        if self.url.startswith('sqlite:'):
            conn = sqlite3.connect(self.url[len('sqlite:'):], timeout=10)
            rows = conn.execute(sqlite, args).fetchall()
            conn.commit()
        else:
            conn = psycopg2.connect(postgres_dsn(self.url))
            with conn, conn.cursor() as cur:
                cur.execute(postgres.replace('?', '%s'), args)
                rows = cur.fetchall() if cur.description else []
        conn.close()
        return rows

    def audit(self):
        """(verb, who, reason) of each decision, in order."""
        return self.sql('SELECT verb, who, reason FROM semel_audit ORDER BY seq',
                        'SELECT verb, who, reason FROM semel.audit ORDER BY id')

    def end_lease(self, key):
        """As if the lease of a key, and all that it allowed, were over."""
        self.sql('UPDATE semel_command SET lease_until_us = claimed_us, request_until_us = claimed_us WHERE key = ?',
                 'UPDATE semel.command SET lease_until = claimed_at, request_until = claimed_at WHERE key = ?',
                 (key.encode(),))

    def set_holder(self, key, label):
        """As if another machine had claimed it."""
        raw = label.encode()
        self.sql('UPDATE semel_command SET holder = ? WHERE key = ?',
                 'UPDATE semel.command SET holder = ? WHERE key = ?', (raw, key.encode()))


def postgres_dsn(url):
    """postgres:// URL without the parameters that are semel's own."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(scheme='postgresql'))

# SPDX-License-Identifier: Apache-2.0
"""The shop under test: started on a free port, spoken to over plain sockets, its tables looked at
from outside."""
import concurrent.futures
import http.client
import json
import sqlite3
import threading

import psycopg2

from .wait import wait_until

PRODUCTS = '/api/v1/products'
SELLERS = '/api/v1/sellers'
ADA = '01890000-0000-7000-8000-00000000ada0'


class Reply:
    """A reply as it came: status, headers in order, body bytes."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name):
        """The header's value, None when absent; more than one is an error."""
        found = [v for k, v in self.headers if k.lower() == name.lower()]
        assert len(found) < 2, f'{name} comes {len(found)} times'
        return found[0] if found else None

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def replayed(self):
        return self.header('Idempotent-Replayed') == 'true'

    @property
    def problem(self):
        """The last part of the problem's type."""
        assert self.header('Content-Type') == 'application/problem+json', self
        assert self.json['status'] == self.status
        return self.json['type'].rsplit('/', 1)[1]

    def problem_or_none(self):
        return self.problem if self.header('Content-Type') == 'application/problem+json' else None

    def kept(self):
        """What a replay must repeat: all but Date, and the mark of a replay."""
        drop = ('date', 'idempotent-replayed', 'connection')
        return self.status, [(k, v) for k, v in self.headers if k.lower() not in drop], self.body

    def __repr__(self):
        return f'{self.status} {self.headers} {self.body[:300]!r}'


class Database:
    """The database that a store URL names, seen from outside."""

    def __init__(self, url):
        self.url = url
        self.is_sqlite = url.startswith('sqlite:')

    def sql(self, sqlite_text, postgres_text=None, args=()):
        """Run one statement (two texts where the dialects differ); returns the rows."""
        if self.is_sqlite:
            conn = sqlite3.connect(self.url[len('sqlite:'):], timeout=10)
            try:
                rows = conn.execute(sqlite_text, args).fetchall()
                conn.commit()
                return rows
            finally:
                conn.close()
        conn = psycopg2.connect(self.url, connect_timeout=5)
        conn.autocommit = True
        try:
            with conn.cursor() as cur:
                cur.execute(postgres_text or sqlite_text.replace('?', '%s'), args)
                return cur.fetchall() if cur.description else []
        finally:
            conn.close()

    def products(self, name):
        return self.sql('SELECT count(*) FROM shop_product WHERE name = ?', args=(name,))[0][0]

    def command(self, key):
        """The row of a key: (state, token, status, body), or None."""
        rows = self.sql('SELECT state, token, status, body FROM semel_command WHERE key = ?',
                        'SELECT state, token, status, body FROM semel.command WHERE key = %s',
                        (key.encode(),))
        assert len(rows) < 2, rows
        return rows[0] if rows else None


FREE, IN_FLIGHT, COMPLETED, UNKNOWN = range(4)


class Shop:
    def __init__(self, procs, binary, url, mode, port=0, **options):
        """options: lease_ms=1000, crash_after_effect=True, ..."""
        argv = [binary, '--store', url, '--listen', f'127.0.0.1:{port}', '--mode', mode]
        for name, value in options.items():
            argv.append('--' + name.replace('_', '-'))
            if value is not True:
                argv.append(str(value))
        self.db = Database(url)
        self.proc = procs.start(argv, name='shop')
        self.port = int(self.proc.wait_log(r'listening on 127\.0\.0\.1:(\d+)').group(1))
        self._seller = None
        self._writing = threading.Lock()  # our own write is no command of the shop's

    def request(self, method, path, body=None, key=None, headers=(), timeout=40):
        """One request on a connection of its own.  body: bytes, or something for JSON.  headers:
        pairs, on top of the usual ones."""
        lines = list(headers)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None and not any(k.lower() == 'content-type' for k, _ in lines):
            lines.append(('Content-Type', 'application/json'))
        if key is not None:
            lines.append(('Idempotency-Key', key))
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)
        try:
            conn.putrequest(method, path)
            if body is not None:
                conn.putheader('Content-Length', str(len(body)))
            for name, value in lines:
                conn.putheader(name, value)
            conn.endheaders(body)
            res = conn.getresponse()
            return Reply(res.status, res.getheaders(), res.read())
        finally:
            conn.close()

    @property
    def seller(self):
        """The id of a seller, put into the table from outside, so that it costs no work-ms."""
        with self._writing:
            if not self._seller:
                self.db.sql('INSERT INTO shop_seller VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING',
                            args=(ADA, 'Ada'))
                self._seller = ADA
            return self._seller

    def product(self, name='Widget', **fields):
        return {'name': name, 'price_minor_units': 999, 'currency': 'EUR',
                'seller_id': self.seller, **fields}

    def create(self, name='Widget', key=None, headers=(), **fields):
        return self.request('POST', PRODUCTS, self.product(name, **fields), key, headers)

    def create_parallel(self, n, name='Widget', key=None):
        """n at the same moment; the replies in the order of their statuses."""
        body, gate = self.product(name), threading.Barrier(n)

        def one(_):
            gate.wait(10)
            return self.request('POST', PRODUCTS, body, key)

        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            return sorted(pool.map(one, range(n)), key=lambda r: r.status)

    def background(self, fn):
        """Run fn in a thread; .result() gives its value or raises its error."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        future = pool.submit(fn)
        pool.shutdown(wait=False)
        return future

    def in_transaction(self):
        """How many commands are in the middle of their transaction, seen from outside."""
        if not self.db.is_sqlite:
            return self.db.sql('', """SELECT count(*) FROM pg_stat_activity WHERE
                application_name = 'shop' AND state = 'idle in transaction'
                AND datname = current_database()""")[0][0]
        with self._writing:
            conn = sqlite3.connect(self.db.url[len('sqlite:'):], timeout=0, isolation_level=None)
            try:
                conn.execute('BEGIN IMMEDIATE')
                return 0
            except sqlite3.OperationalError:
                return 1  # a writer has the file
            finally:
                conn.close()

    def wait_running(self, mode, n=1, key='k'):
        """Wait until n commands are in their work: between claim and business write."""
        if mode == 'reserve' and n == 1:
            return self.wait_claimed(key)
        if mode == 'transaction':
            return wait_until(lambda: self.in_transaction() >= n, what=f'{n} transactions')
        return wait_until(lambda: self.db.sql(
            f'SELECT count(*) FROM semel_command WHERE state = {IN_FLIGHT}',
            f'SELECT count(*) FROM semel.command WHERE state = {IN_FLIGHT}')[0][0] >= n,
            what=f'{n} claims')

    def wait_claimed(self, key):
        """Wait until the row of the key is committed as IN_FLIGHT."""
        return wait_until(lambda: (self.db.command(key) or (None,))[0] == IN_FLIGHT,
                          what=f'{key} is claimed')

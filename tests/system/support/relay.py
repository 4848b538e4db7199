# SPDX-License-Identifier: Apache-2.0
"""A running `semel relay`, its metrics, and the outbox table it reads."""
import re
import urllib.error
import urllib.request

import psycopg2

from .wait import wait_until


class Relay:
    """Options are given as keywords: Relay(procs, build, url, boot, mode='single', batch_rows=10)."""

    def __init__(self, procs, build, url, bootstrap, name='relay', wait=True, args=(), env=None, **options):
        more = [a for k, v in options.items() for a in (f'--{k.replace("_", "-")}', str(v))]
        self.p = procs.start([build.semel, 'relay', '--db', url, '--brokers', bootstrap, '--admin',
                              '127.0.0.1:0', *more, *args], name=name, env=env)
        self.port = None
        if wait:
            self.port = int(self.p.wait_log(r'admin on port (\d+)', 30).group(1))

    def get(self, path):
        """(status, text)"""
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{self.port}{path}', timeout=10) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metrics(self):
        """{'semel_relay_rows_total{outcome="published"}': 3.0, ...}"""
        return {m.group(1): float(m.group(2)) for m in
                re.finditer(r'(?m)^([a-z_]+(?:\{[^}]*\})?) (\S+)$', self.get('/metrics')[1])}

    def rows(self, outcome):
        return self.metrics()[f'semel_relay_rows_total{{outcome="{outcome}"}}']

    def metric(self, name):
        return self.metrics()[name]

    def ready(self):
        return self.get('/readyz')[0] == 200


def drained(*relays, code=0):
    """Told to end, each of them does, in time."""
    for p in (getattr(r, 'p', r) for r in relays):
        assert p.terminate(30) == code, p.logs()


def lost_nothing(*relays):
    """None of them lost a slot's lease: so nothing may have been sent twice."""
    assert [r.metric('semel_relay_lost_slots_total') for r in relays] == [0] * len(relays)


class Outbox:
    """The table semel.outbox of a PostgreSQL database."""

    def __init__(self, dsn):
        self.conn = psycopg2.connect(dsn)
        self.conn.autocommit = True

    def close(self):
        self.conn.close()

    def sql(self, text, *args):
        with self.conn.cursor() as c:
            c.execute(text, args)
            return c.fetchall() if c.description else None

    def one(self, text, *args):
        return self.sql(text, *args)[0][0]

    def add(self, topic, rows):
        """rows: (key, payload) each, committed together; the event ids, in order."""
        with self.conn.cursor() as c:
            ids = []
            c.execute('BEGIN')
            for key, payload in rows:
                c.execute('SELECT semel.publish(%s, %s, %s)', (topic, key, payload))
                ids.append(c.fetchone()[0])
            c.execute('COMMIT')
            return ids

    def fill(self, topic, rows, keys=100, size=400, first=0):
        """Many rows in one statement: payloads are '<key> <n of the key>' with padding; n begins at
        `first`."""
        self.sql('''INSERT INTO semel.outbox (topic, key, payload)
                    SELECT %s, 'k' || (i %% %s),
                           convert_to(rpad('k' || (i %% %s) || ' ' || (%s + i / %s) || ' ', %s, 'x'), 'UTF8')
                    FROM generate_series(0, %s - 1) i ORDER BY i''', topic, keys, keys, first, keys, size, rows)

    def count(self, status=None):
        if status is None:
            return self.one('SELECT count(*) FROM semel.outbox')
        return self.one('SELECT count(*) FROM semel.outbox WHERE status = %s', status)

    def wait_empty(self, timeout=60.0):
        wait_until(lambda: self.count() == 0, timeout, 'the outbox is empty')

    def wait_count(self, status, n, timeout=30.0):
        wait_until(lambda: self.count(status) == n, timeout, f'{n} rows are {status}')


def in_order(messages):
    """Per key, the numbers of fill()'s payloads: first occurrences must rise.  Returns (number of
    distinct payloads, duplicates)."""
    seen, last, duplicates = set(), {}, 0
    for _, _, key, value, _ in messages:
        k, n = value.split(b' ')[:2]
        assert k == key
        if (k, n) in seen:
            duplicates += 1
            continue
        seen.add((k, n))
        assert int(n) == last.get(k, -1) + 1, f'{k}: {n} after {last.get(k)}'
        last[k] = int(n)
    return len(seen), duplicates

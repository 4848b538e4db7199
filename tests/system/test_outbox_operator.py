# SPDX-License-Identifier: Apache-2.0
"""`semel outbox`: what waits and why, and the operator's verbs with their refusals and audit."""
import json
import re
import subprocess
import time

import pytest

from support import Store


class Outbox:
    """The outbox of one store: rows by SQL, everything else by the program."""

    def __init__(self, store):
        self.store = store

    def run(self, *args):
        return subprocess.run([self.store.build.semel, 'outbox', *args, '--db', self.store.url],
                              text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)

    def ok(self, *args):
        r = self.run(*args)
        assert r.returncode == 0, r.stderr
        return r

    def json(self, *args):
        return [json.loads(line) for line in self.ok(*args, '--json').stdout.splitlines()]

    def status(self, kind='outbox', *args):
        found = [o for o in self.json('status', *args) if o['kind'] == kind]
        return found[0] if kind == 'outbox' else found

    def add(self, topic='orders', key='k', status='PENDING', attempts=0, error=None, next_s=None,
            published_s=None, created_s=0, row=None):
        """A row, of this number when one is given; seconds are from now."""
        def us(s):
            return None if s is None else int((time.time() + s) * 1e6)

        def interval(s):
            return None if s is None else f'{s} seconds'
        sql = '''INSERT INTO {} (topic, key, payload, status, attempts, last_error,
                                 next_attempt_at, published_at, created_at{id})
                 VALUES (?, ?, 'x', ?, ?, ?, {}, {}, {}{row}) RETURNING id'''
        sql = sql.replace('{id}', '' if row is None else ', id')
        sql = sql.replace('{row}', '' if row is None else f', {row}')
        later = 'clock_timestamp() + ?::interval'
        if self.store.url.startswith('sqlite:'):
            args = (topic, key, status, attempts, error, us(next_s), us(published_s), us(created_s))
        else:
            args = (topic, key, status, attempts, error, interval(next_s), interval(published_s),
                    interval(created_s))
        return self.store.sql(sql.format('semel_outbox', '?', '?', '?'),
                              sql.format('semel.outbox', later, later, later), args)[0][0]

    def states(self):
        sql = 'SELECT id, status FROM {} ORDER BY id'
        return dict(self.store.sql(sql.format('semel_outbox'), sql.format('semel.outbox')))

    def audit(self):
        sql = "SELECT verb, who, reason, row_count FROM {} WHERE subject <> 'command' ORDER BY 4"
        return self.store.sql(sql.format('semel_audit'), sql.format('semel.audit'))


@pytest.fixture
def outbox(store):
    o = Outbox(store)
    o.ok('status')  # which makes a SQLite file
    return o


def test_status_of_an_empty_outbox(outbox):
    st = outbox.status()
    assert (st['pending'], st['dead'], st['mode'], st['relays']) == (0, 0, 'owned', 0)
    assert st['oldest_pending_s'] is None and len(st['uuid']) == 36
    slots = outbox.status('slot')
    assert [s['slot'] for s in slots] == list(range(16))
    assert all(s['free'] and s['owner'] is None for s in slots)
    text = outbox.ok('status').stdout
    assert 'no rows' in text and 'nobody' in text


def test_status_counts_ages_and_names_the_row_that_blocks(outbox):
    outbox.add()
    outbox.add(topic='bills')
    late = outbox.add(key='slow', attempts=2, error='timed out', next_s=100)
    outbox.add(key='slow')
    dead = outbox.add(key='bad', status='DEAD', attempts=3, error='too large')
    outbox.add(key='bad')
    st = outbox.status()
    assert (st['pending'], st['dead'], st['published']) == (5, 1, 0)
    assert 0 <= st['oldest_pending_s'] < 60
    counts = {(c['state'], c['topic']): c['rows'] for c in outbox.status('count')}
    assert counts == {('PENDING', 'orders'): 4, ('PENDING', 'bills'): 1, ('DEAD', 'orders'): 1}
    (blocked,) = outbox.status('blocked')
    assert (blocked['key'], blocked['row'], blocked['dead']) == ('slow', str(late), False)
    assert 30 < blocked['next_try_s'] <= 100
    both = outbox.status('blocked', '--on-dead', 'block')
    assert {(b['key'], b['row'], b['dead']) for b in both} == {('slow', str(late), False),
                                                               ('bad', str(dead), True)}
    text = outbox.ok('status', '--on-dead', 'block').stdout
    assert 'never: it is DEAD' in text and 'slow' in text


def test_dead_list_retry_and_discard(outbox):
    assert 'no row is DEAD' in outbox.ok('dead', 'list').stderr
    a = outbox.add(key='a', status='DEAD', attempts=10, error='a\x1b[31m topic "x" is unknown')
    b = outbox.add(key=None, status='DEAD', attempts=1, error='too large')
    c = outbox.add(key='c', status='DEAD', attempts=1, error='too large')
    pending = outbox.add()
    rows = outbox.json('dead', 'list')
    assert [(r['id'], r['key'], r['attempts'], r['why']) for r in rows][1:] == [
        (str(b), None, 1, 'too large'), (str(c), 'c', 1, 'too large')]
    text = outbox.ok('dead', 'list').stdout
    assert 'topic "x" is unknown' in text and '\x1b' not in text

    r = outbox.ok('retry', str(a), '--who', 'ada')
    assert 'out of order' in r.stderr and r.stdout == '1 row waits again\n'
    assert outbox.states() == {a: 'PENDING', b: 'DEAD', c: 'DEAD', pending: 'PENDING'}
    for again in (a, pending, 99999):
        r = outbox.run('retry', str(again))
        assert r.returncode == 65 and 'no DEAD row' in r.stderr
    r = outbox.run('discard', str(pending), '--reason', 'r')
    assert r.returncode == 65
    outbox.ok('discard', str(b), '--reason', 'test data', '--who', 'bob')
    assert outbox.states() == {a: 'PENDING', c: 'DEAD', pending: 'PENDING'}
    assert outbox.json('retry', '--all', '--who', 'eve') == [{'rows': 1}]
    assert set(outbox.states().values()) == {'PENDING'}
    assert {(verb, who) for verb, who, _, _ in outbox.audit()} == {
        ('retry', 'ada'), ('discard', 'bob'), ('retry', 'eve')}
    assert 'test data' in [reason for _, _, reason, _ in outbox.audit()]


def test_a_row_of_any_number_can_be_named(outbox):
    odd, last = 2 ** 53 + 1, 2 ** 63 - 1
    for row in (odd, last):
        outbox.add(key=str(row), status='DEAD', attempts=1, row=row)
    rows = outbox.json('dead', 'list')
    assert [r['id'] for r in rows] == [str(odd), str(last)]  # a number of JSON has 53 bits for many readers
    blocked = outbox.status('blocked', '--on-dead', 'block')
    assert {b['row'] for b in blocked} == {str(odd), str(last)}
    outbox.ok('retry', str(last))
    outbox.ok('discard', str(odd), '--reason', 'r')
    assert outbox.states() == {last: 'PENDING'}
    for none in (2 ** 63, 2 ** 64 + odd, '9' * 40):
        assert outbox.run('retry', str(none)).returncode == 64


def test_a_dead_row_without_an_order_is_named_by_its_hash(build, pg, pg_db, pg_store_url):
    outbox = Outbox(Store(build, pg_store_url))
    outbox.store.sql(None, '''CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL,
                              aggregateid text NOT NULL, type text NOT NULL, payload jsonb)''')
    mapping = ['--preset', 'debezium', '--unordered']
    r = subprocess.run([build.semel, 'migrate', '--for-table', 'outbox', *mapping, '--db', pg_store_url],
                       text=True, capture_output=True, timeout=60)
    assert r.returncode == 0, r.stderr
    pg.psql(pg_db, r.stdout)
    outbox.store.sql(None, '''INSERT INTO outbox (id, aggregatetype, aggregateid, type, status, attempts)
                              SELECT md5(i::text)::uuid, 'order', i, 'T', 'DEAD', 1
                              FROM generate_series(1, 6) i''')
    ids = [r['id'] for r in outbox.json('dead', 'list', *mapping)]
    assert len(ids) == 6 and any(len(i) == 19 for i in ids)
    for one in ids[:3]:
        outbox.ok('retry', one, *mapping)
    for one in ids[3:]:
        outbox.ok('discard', one, '--reason', 'r', *mapping)
    assert outbox.store.sql(None, 'SELECT status, count(*) FROM outbox GROUP BY 1') == [('PENDING', 3)]
    outbox.store.sql(None, '''UPDATE outbox SET status = 'PUBLISHED', published_at = clock_timestamp() -
                              interval '1 min', created_at = clock_timestamp() - interval '3 h' ''')
    again = ['republish', '--since', '2h', *mapping, '--inbox-retention']
    assert outbox.run(*again, '1h').returncode == 65
    assert outbox.json(*again, '4h') == [{'rows': 3}]


@pytest.mark.parametrize('created', ['none', 'unreadable', 'known'])
def test_a_row_that_does_not_say_when_it_was_made_is_of_no_age(build, sqlite_url, created):
    outbox = Outbox(Store(build, sqlite_url))
    outbox.ok('status')
    column = '' if created == 'none' else ', created_at'
    outbox.store.sql(f'''CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT,
                         type TEXT, payload TEXT, status TEXT, attempts INTEGER, next_attempt_at INTEGER,
                         last_error TEXT, published_at INTEGER{column})''', None)
    value = {'none': '', 'unreadable': ", 'in spring'", 'known': ", datetime('now', '-3 hours')"}[created]
    for status in ('PENDING', 'DEAD'):
        outbox.store.sql(f'''INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, status,
                             attempts{column}) VALUES ('{status}', 'order', '7', 'T', '{{}}', '{status}',
                             1{value})''', None)
    mapping = ['--preset', 'debezium']
    st = outbox.status('outbox', *mapping)
    (dead,) = outbox.json('dead', 'list', *mapping)
    texts = [outbox.ok(*args, *mapping).stdout for args in (['status'], ['dead', 'list'])]
    assert (st['pending'], st['dead']) == (1, 1)
    if created == 'known':
        assert 3 * 3600 <= st['oldest_pending_s'] < 4 * 3600 and dead['created'] is not None
        assert all('3 h' in t for t in texts)
    else:
        assert (st['oldest_pending_s'], dead['created']) == (None, None)
        assert all('unknown' in t for t in texts)
    outbox.store.sql(f'''UPDATE outbox SET status = 'PUBLISHED', published_at =
                         {int((time.time() - 60) * 1e6)} WHERE status = 'DEAD' ''', None)
    r = outbox.run('republish', '--since', '2h', '--inbox-retention', '1h', *mapping)
    assert r.returncode == (65 if created == 'known' else 0), r.stderr


def test_retry_all_goes_over_more_than_one_transaction(outbox):
    sql = '''INSERT INTO {} (topic, key, payload, status, attempts)
             SELECT 't', 'k', 'x', 'DEAD', 1 FROM {} LIMIT 2500'''
    outbox.store.sql(sql.format('semel_outbox', '''(WITH RECURSIVE n(i) AS
                     (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) SELECT i FROM n)'''),
                     sql.format('semel.outbox', 'generate_series(1, 2500) i'))
    assert outbox.json('retry', '--all') == [{'rows': 2500}]
    assert [n for _, _, _, n in outbox.audit()] == [500, 1000, 1000]


def test_long_work_says_how_far_it_is(build, pg_store_url):
    outbox = Outbox(Store(build, pg_store_url))
    for sql in ("""INSERT INTO semel.outbox (topic, key, payload, status, attempts)
                   SELECT 't', 'k', 'x', 'DEAD', 1 FROM generate_series(1, 2001) i""",
                """CREATE FUNCTION semel.slow() RETURNS trigger LANGUAGE plpgsql AS
                   $$BEGIN PERFORM pg_sleep(1.05); RETURN NULL; END$$""",
                'CREATE TRIGGER slow BEFORE UPDATE ON semel.outbox EXECUTE FUNCTION semel.slow()'):
        outbox.store.sql(None, sql)
    r = outbox.ok('retry', '--all', '--json')
    assert [json.loads(line) for line in r.stdout.splitlines()] == [{'rows': 2001}]
    assert re.findall(r'(\d+) rows so far', r.stderr) == ['2000', '2001']


def test_c10_republish_says_why_it_cannot_under_done_delete(outbox):
    outbox.add()
    r = outbox.run('republish', '--since', '2h')
    assert r.returncode == 65 and '--done delete' in r.stderr and '--done keep' in r.stderr


def test_c10_republish_refuses_what_consumers_have_forgotten(outbox):
    old = outbox.add(status='PUBLISHED', published_s=-8 * 86400)
    new = outbox.add(status='PUBLISHED', published_s=-600)
    r = outbox.run('republish', '--since', '30d')
    assert r.returncode == 65 and 'inbox-retention' in r.stderr and '--force' in r.stderr
    assert set(outbox.states().values()) == {'PUBLISHED'}
    # Nothing was published in this time: done, with 0 rows.
    assert outbox.json('republish', '--since', '3h', '--until', '1h') == [{'rows': 0}]
    assert outbox.json('republish', '--since', '1h') == [{'rows': 1}]
    assert outbox.states() == {old: 'PUBLISHED', new: 'PENDING'}
    assert outbox.json('republish', '--since', '30d', '--inbox-retention', '9d') == [{'rows': 1}]
    older = outbox.add(status='PUBLISHED', published_s=-20 * 86400)
    r = outbox.ok('republish', '--since', '30d', '--force', '--who', 'ada')
    assert 'same event ids' in r.stderr
    assert outbox.states()[older] == 'PENDING'
    assert [(verb, n) for verb, _, _, n in outbox.audit()] == [('republish', 1)] * 3


def test_c10_republish_counts_from_when_a_row_was_made(outbox):
    row = outbox.add(status='PUBLISHED', created_s=-3 * 3600, published_s=-60)
    for _ in range(2):  # the first time it may have been applied is not moved by a refusal
        r = outbox.run('republish', '--since', '2h', '--inbox-retention', '1h')
        assert r.returncode == 65 and 'made' in r.stderr and '--force' in r.stderr
        assert outbox.states() == {row: 'PUBLISHED'}
    assert outbox.json('republish', '--since', '2h', '--inbox-retention', '4h') == [{'rows': 1}]
    forced = outbox.add(status='PUBLISHED', created_s=-3 * 3600, published_s=-60)
    r = outbox.ok('republish', '--since', '2h', '--inbox-retention', '1h', '--force')
    assert outbox.states() == {row: 'PENDING', forced: 'PENDING'}


def test_c10_republish_takes_no_row_that_is_published_again_meanwhile(build, pg_store_url):
    outbox = Outbox(Store(build, pg_store_url))
    for sql in ("""INSERT INTO semel.outbox (topic, status, published_at)
                   SELECT 't', 'PUBLISHED', clock_timestamp() FROM generate_series(1, 1500)""",
                """CREATE FUNCTION semel.relay() RETURNS trigger LANGUAGE plpgsql AS
                   $$BEGIN NEW.status := 'PUBLISHED'; NEW.published_at := clock_timestamp(); RETURN NEW;
                     END$$""",
                """CREATE TRIGGER relay BEFORE UPDATE ON semel.outbox FOR EACH ROW
                   WHEN (NEW.status = 'PENDING') EXECUTE FUNCTION semel.relay()"""):
        outbox.store.sql(None, sql)
    tomorrow = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 86400))
    for force in ([], ['--force']):
        assert outbox.json('republish', '--since', '2h', '--until', tomorrow, *force) == [{'rows': 1500}]
        assert set(outbox.states().values()) == {'PUBLISHED'}  # each of them, by the trigger


def test_prune_deletes_old_published_rows_only(outbox):
    old = outbox.add(status='PUBLISHED', published_s=-10 * 86400)
    new = outbox.add(status='PUBLISHED', published_s=-86400)
    pending, dead = outbox.add(), outbox.add(status='DEAD')
    assert outbox.json('prune', '--dry-run') == [{'rows': 1}]
    assert old in outbox.states()
    assert outbox.json('prune') == [{'rows': 1}]
    assert list(outbox.states()) == [new, pending, dead]
    assert outbox.json('prune', '--keep', '1h') == [{'rows': 1}]
    assert list(outbox.states()) == [pending, dead]


USAGE = [
    (['dead'], 'dead list'),
    (['dead', 'show'], 'dead list'),
    (['retry'], '--all'),
    (['retry', 'x'], '--all'),
    (['retry', '1', '--all'], '--all'),
    (['discard', '1'], '--reason'),
    (['discard', '--reason', 'r'], 'ID'),
    (['republish'], '--since'),
    (['republish', '--since', 'yesterday'], '2024-06-01T12:00:00Z'),
    (['republish', '--since', '1h', '--until', '2h'], 'before'),
    (['prune', '--keep', '5'], 'unit'),
    (['status', '--on-dead', 'maybe'], 'skip or block'),
]


def test_usage(outbox):
    for args, says in USAGE:
        r = outbox.run(*args)
        assert r.returncode == 64 and says in r.stderr, (args, r.stderr)


def test_a_memory_store_has_no_outbox(build):
    r = subprocess.run([build.semel, 'outbox', 'status', '--db', 'memory:'], text=True,
                       capture_output=True, timeout=60)
    assert r.returncode == 64 and 'no outbox' in r.stderr

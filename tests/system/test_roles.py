# SPDX-License-Identifier: Apache-2.0
"""Roles with what `semel migrate --grants` prints, and no more: one that runs relay, consume and the
operators' commands, and one that may only leave events."""
import psycopg2
import pytest

from support import wait_until
from support.relay import Outbox, Relay


@pytest.fixture
def roles(semel, pg, pg_db, pg_url):
    assert semel('migrate', '--db', pg_url).returncode == 0
    made = {'worker': [], 'shop': ['--only', 'append']}
    for role, more in made.items():
        pg.sql(pg_db, f'CREATE ROLE {role} LOGIN')
        r = semel('migrate', '--grants', role, *more, '--db', pg_url)
        assert r.returncode == 0, r.logs()
        pg.psql(pg_db, r.out())
    yield {role: pg.url(pg_db, user=role) for role in made}
    for role in made:
        pg.sql(pg_db, f'DROP OWNED BY {role}')
        pg.sql(pg_db, f'DROP ROLE {role}')


def as_role(pg, db, role):
    conn = psycopg2.connect(pg.dsn(db, user=role))
    conn.autocommit = True
    return conn.cursor()


def test_a_role_that_only_appends(roles, pg, pg_db):
    cur = as_role(pg, pg_db, 'shop')
    cur.execute("SELECT semel.publish('orders', 'k', 'x'::bytea)")
    cur.execute("SELECT semel.publish_json('orders', 'k', '{}')")
    cur.execute("INSERT INTO semel.outbox (topic, key, payload) VALUES ('orders', 'k', 'y') "
                'RETURNING event_id')
    assert len(cur.fetchone()[0]) == 36
    for refused in ('SELECT payload FROM semel.outbox', 'DELETE FROM semel.outbox',
                    "UPDATE semel.outbox SET status = 'PUBLISHED'", 'TRUNCATE semel.outbox',
                    'SELECT * FROM semel.relay_slot', 'SELECT * FROM semel.command',
                    'INSERT INTO semel.audit DEFAULT VALUES', 'SELECT * FROM semel.processed_event',
                    'CREATE TABLE semel.mine (i int)'):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cur.execute(refused)
    assert pg.value(pg_db, 'SELECT count(*) FROM semel.outbox') == 3


def test_only_goes_with_grants(semel, pg_url):
    r = semel('migrate', '--only', 'append', '--db', pg_url)
    assert r.returncode == 64 and '--grants' in r.err()


@pytest.mark.kafka
def test_relay_consume_and_operators_with_the_printed_grants(roles, semel, procs, build, pg, pg_db,
                                                             kafka):
    worker, topic = roles['worker'], kafka.new_topic(2)
    pg.psql(pg_db, 'CREATE TABLE effect (id text); GRANT INSERT ON effect TO worker;')
    shop = as_role(pg, pg_db, 'shop')
    outbox = Outbox(pg.dsn(pg_db))

    def publish(n):
        shop.execute("SELECT semel.publish(%s, 'k' || i, 'x'::bytea) FROM generate_series(1, %s) i",
                     (topic, n))
    for mode in ('owned', 'single', 'two-phase', 'exactly-once'):
        publish(50)
        relay = Relay(procs, build, worker, kafka.bootstrap, mode=mode, done='keep', slot_lease='1s',
                      name=f'relay-{mode}')
        wait_until(lambda: outbox.count('PENDING') + outbox.count('PUBLISHING') == 0)
        # it may count, and has: at its start, so the rows are there in one state or another
        wait_until(lambda: sum(v for k, v in relay.metrics().items()
                               if k.startswith('semel_outbox_rows{')) >= 50)
        assert relay.p.terminate(30) == 0, relay.p.logs()
        assert 'privilege' not in relay.p.logs() and 'denied' not in relay.p.logs()
    p = procs.start([build.semel, 'consume', '--db', worker, '--brokers', kafka.bootstrap, '--topic',
                     topic, '--group', 'g', '--sql', 'INSERT INTO effect VALUES ($3)'], name='consume')
    wait_until(lambda: pg.value(pg_db, 'SELECT count(DISTINCT id) FROM effect') == 200, 60)
    assert p.terminate(30) == 0, p.logs()
    outbox.sql("UPDATE semel.outbox SET status = 'DEAD', last_error = 'x' WHERE id IN (SELECT id FROM "
               'semel.outbox ORDER BY id LIMIT 2)')
    one, two = [r[0] for r in outbox.sql("SELECT id FROM semel.outbox WHERE status = 'DEAD' ORDER BY id")]
    for args in (['status', '--json'], ['dead', 'list'], ['retry', str(one)],
                 ['discard', str(two), '--reason', 'r'], ['republish', '--since', '1h'],
                 ['prune', '--keep', '1s', '--dry-run'], ['prune', '--keep', '1s']):
        r = semel('outbox', *args, '--db', worker)
        assert r.returncode == 0, (args, r.logs())
    for args in (['status'], ['dead', 'list']):
        r = semel('inbox', *args, '--db', worker)
        assert r.returncode == 0, (args, r.logs())
    cur = as_role(pg, pg_db, 'worker')
    for refused in ('DROP TABLE semel.outbox', 'UPDATE semel.audit SET who = NULL',
                    'DELETE FROM semel.relay_slot', 'INSERT INTO semel.outbox_meta DEFAULT VALUES',
                    'ALTER TABLE semel.outbox ADD x int', 'CREATE TABLE semel.mine (i int)'):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cur.execute(refused)
    outbox.close()

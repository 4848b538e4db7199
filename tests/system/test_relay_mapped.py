# SPDX-License-Identifier: Apache-2.0
"""The relay over outbox tables that others made: the tutorial's and Debezium's, as their users have
them, with an order column and without."""
import uuid

import pytest

from support import Store, wait_until
from support.relay import Outbox, Relay

pytestmark = pytest.mark.kafka

TABLES = {
    'tutorial': ('outbox_event', '''
        CREATE TABLE outbox_event (
          id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id uuid NOT NULL,
          payload jsonb NOT NULL, status text NOT NULL DEFAULT 'PENDING', locked_at timestamptz,
          created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz)''',
                 'INSERT INTO outbox_event (aggregate_id, payload) VALUES (%s, %s) RETURNING id'),
    'debezium': ('outbox', '''
        CREATE TABLE outbox (
          id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL,
          aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)''',
                 "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) "
                 "VALUES ('{topic}', %s, 'OrderConfirmed', %s) RETURNING id"),
}


@pytest.mark.parametrize('mode', ['owned', 'two-phase', 'exactly-once'])
@pytest.mark.parametrize('order', [True, False], ids=['ordered', 'unordered'])
@pytest.mark.parametrize('preset', TABLES)
def test_a_table_of_others(semel, procs, build, pg, pg_db, pg_store_url, kafka, preset, order, mode):
    table, create, insert = TABLES[preset]
    topic = kafka.new_topic(3)
    outbox = Outbox(pg.dsn(pg_db))
    outbox.sql(create)
    insert = insert.replace('{topic}', topic[3:])
    keys = [str(uuid.uuid4()) for _ in range(20)]
    ids = {}

    def add(n):
        for i in range(n):
            key = keys[i % len(keys)]
            ids[str(outbox.one(insert, key, f'{{"n": {len(ids)}}}'))] = (key, len(ids))
    add(100)  # before there was a relay
    flags = [] if order else ['--unordered']
    mapping = ['--preset', preset]
    if not order:
        r = semel('relay', '--db', pg_store_url, '--brokers', kafka.bootstrap, *mapping, '--topic', 'x')
        assert r.returncode != 0 and 'semel_id' in r.err()
    r = semel('migrate', '--for-table', table, *mapping, *flags, '--db', pg_store_url)
    assert r.returncode == 0, r.logs()
    assert ('ALWAYS' in r.out()) == order
    pg.psql(pg_db, r.out())
    # Debezium's: the topic is a prefix and the aggregate type.
    fixed = topic if preset == 'tutorial' else topic[:3]
    relay = Relay(procs, build, pg_store_url, kafka.bootstrap, mode=mode, done='keep', batch_rows=30,
                  args=[*mapping, '--topic', fixed, *flags])
    add(100)
    done = f"SELECT count(*) FROM {table} WHERE status = 'PUBLISHED'"
    wait_until(lambda: outbox.one(done) == 200, 60)
    assert ('UNORDERED' in relay.p.logs()) == (not order)
    r = semel('outbox', 'status', '--db', pg_store_url, *mapping, '--topic', fixed, *flags)
    assert r.returncode == 0, r.logs()
    assert relay.p.terminate(30) == 0, relay.p.logs()
    last = {}
    messages = kafka.consume_all(topic)
    assert len(messages) == 200
    for _, _, key, value, headers in messages:
        headers = {k: v.decode() for k, v in headers}
        key = key.decode()
        expected_key, n = ids.pop(headers['event-id'])
        assert key == expected_key and value == b'{"n": %d}' % n
        assert (headers.get('id') == headers['event-id']) == (preset == 'debezium')
        if order or n >= 100:  # in Debezium's table rows of before have one created_at
            assert last.get(key, -1) < n
        last[key] = n
    assert not ids
    outbox.close()


def test_c1_two_spellings_are_one_outbox(semel, procs, build, pg, pg_db, pg_store_url, kafka):
    """Two relays, and two spellings of their table: they share its slots, and each row goes out once."""
    table, create, insert = TABLES['tutorial']
    topic = kafka.new_topic(3)
    outbox = Outbox(pg.dsn(pg_db))
    outbox.sql(create)
    mapping = ['--preset', 'tutorial', '--topic', topic]
    relays = []
    for spelled in (table, f'public.{table}'):
        r = semel('migrate', '--for-table', spelled, '--preset', 'tutorial', '--db', pg_store_url)
        pg.psql(pg_db, r.out())
        relays.append(Relay(procs, build, pg_store_url, kafka.bootstrap, done='keep',
                            args=[*mapping, '--table', spelled]))
    shares = """SELECT string_agg(n::text, ',') FROM (SELECT count(*) AS n FROM semel.relay_slot
                WHERE owner IS NOT NULL GROUP BY owner) a"""
    wait_until(lambda: outbox.one(shares) == '8,8', 60)
    ids = {str(outbox.one(insert, str(uuid.uuid4()), '{}')) for _ in range(100)}
    wait_until(lambda: outbox.one(f"SELECT count(*) FROM {table} WHERE status = 'PUBLISHED'") == 100, 60)
    for relay in relays:
        assert relay.p.terminate(30) == 0, relay.p.logs()
    sent = [dict(headers)['event-id'].decode() for _, _, _, _, headers in kafka.consume_all(topic)]
    assert len(sent) == 100 and set(sent) == ids
    outbox.close()


@pytest.mark.parametrize('created', [None, "datetime('now', '-3 hours')"], ids=['unknown', 'known'])
def test_rows_of_no_age_raise_no_alarm(procs, build, semel, sqlite_url, created):
    """Debezium's table has no created_at.  The row stays under way: there is no broker."""
    assert semel('outbox', 'status', '--db', sqlite_url).returncode == 0  # which makes the file
    Store(build, sqlite_url).sql(f'''
        CREATE TABLE outbox AS SELECT '{uuid.uuid4()}' AS id, 'order' AS aggregatetype, '7' AS aggregateid,
          'T' AS type, '{{}}' AS payload, 'PENDING' AS status, 0 AS attempts, NULL AS next_attempt_at,
          NULL AS last_error, NULL AS published_at''' + (f', {created} AS created_at' if created else ''), None)
    relay = Relay(procs, build, sqlite_url, '127.0.0.1:1', args=['--preset', 'debezium'])
    wait_until(lambda: relay.metric('semel_relay_broker_away') == 1, 30)
    lag, oldest = 'semel_relay_lag_seconds', 'semel_outbox_oldest_pending_seconds'
    if created:
        for name in (lag, oldest):
            wait_until(lambda: 3 * 3600 <= relay.metrics().get(name, -1) < 4 * 3600, 30, name)
    else:
        metrics = relay.metrics()
        assert metrics[lag] == 0 and oldest not in metrics

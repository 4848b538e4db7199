# SPDX-License-Identifier: Apache-2.0
"""What docs/compare.md says of the SQL of the two origins, run on a real PostgreSQL.  Each test shows
that the form as printed there does what the page says; what semel does instead is tested elsewhere."""
import psycopg2
import psycopg2.errors
import pytest


@pytest.fixture
def connect(pg_url):
    open_ones = []

    def go(autocommit=True):
        conn = psycopg2.connect(pg_url, connect_timeout=5)
        conn.autocommit = autocommit
        open_ones.append(conn)
        return conn
    yield go
    for conn in open_ones:
        conn.close()


def sql(conn, text, args=()):
    with conn.cursor() as cur:
        cur.execute(text, args)
        return cur.fetchall() if cur.description else cur.rowcount


PROCESSED = """CREATE TABLE processed_event (event_id text, consumer_id text, processed_at timestamptz,
               PRIMARY KEY (event_id, consumer_id))"""
DO_UPDATE = """INSERT INTO processed_event (event_id, consumer_id, processed_at)
               VALUES (%s, 'billing-service', now())
               ON CONFLICT (event_id, consumer_id) DO UPDATE SET processed_at = EXCLUDED.processed_at
               RETURNING (xmax = 0) AS inserted"""
DO_NOTHING = """INSERT INTO processed_event (event_id, consumer_id, processed_at)
                VALUES (%s, 'billing-service', now()) ON CONFLICT DO NOTHING"""


def rows_written_by(conn, statement, n):
    sql(conn, PROCESSED)
    for _ in range(n):
        sql(conn, statement, ('e-1',))
    sql(conn, 'SELECT pg_stat_force_next_flush()')
    inserted, updated = sql(conn, "SELECT n_tup_ins, n_tup_upd FROM pg_stat_user_tables"
                                  " WHERE relname = 'processed_event'")[0]
    sql(conn, 'DROP TABLE processed_event')
    return inserted, updated


def test_do_update_writes_a_row_for_each_duplicate_and_do_nothing_none(connect):
    conn = connect()
    assert rows_written_by(conn, DO_UPDATE, 501) == (1, 500)
    assert rows_written_by(conn, DO_NOTHING, 501) == (1, 0)


def test_the_count_of_rows_tells_the_first_from_a_duplicate(connect):
    conn = connect()
    sql(conn, PROCESSED)
    assert [sql(conn, DO_NOTHING, ('e-1',)) for _ in range(3)] == [1, 0, 0]


def test_xmax_cannot_be_asked_of_a_partitioned_table(connect):
    conn = connect()
    sql(conn, PROCESSED + ' PARTITION BY HASH (event_id)')
    sql(conn, """CREATE TABLE p0 PARTITION OF processed_event
                 FOR VALUES WITH (MODULUS 1, REMAINDER 0)""")
    with pytest.raises(psycopg2.Error, match='system column'):
        sql(conn, DO_UPDATE, ('e-1',))
    assert sql(conn, DO_NOTHING, ('e-1',)) == 1


OUTBOX = """CREATE TABLE outbox_event (id bigserial PRIMARY KEY, aggregate_id text, version int,
            status text DEFAULT 'PENDING', locked_at timestamptz, created_at timestamptz DEFAULT now())"""
LOCK_AND_MARK = """UPDATE outbox_event SET status = 'PUBLISHING', locked_at = now() WHERE id IN (
                   SELECT id FROM outbox_event WHERE status = 'PENDING' ORDER BY created_at
                   LIMIT 2 FOR UPDATE SKIP LOCKED) RETURNING version"""
LOCK_PENDING = """SELECT version FROM outbox_event WHERE status = 'PENDING' ORDER BY created_at
                  LIMIT 2 FOR UPDATE SKIP LOCKED"""


def test_skip_locked_lets_a_younger_event_of_a_key_overtake(connect):
    first, second = connect(autocommit=False), connect(autocommit=False)
    sql(first, OUTBOX)
    first.commit()
    for version in (1, 2, 3, 4):
        sql(first, "INSERT INTO outbox_event (aggregate_id, version) VALUES ('order-7', %s)", (version,))
        first.commit()
    assert sql(first, LOCK_PENDING) == [(1,), (2,)]
    # The first relay is paused before it publishes; the second one finds more work.
    assert sql(second, LOCK_PENDING) == [(3,), (4,)]


def test_a_reset_after_a_time_lets_two_relays_publish_the_same_rows(connect):
    """The cleaner cannot know whether the relay that has them is dead or slow."""
    relay, cleaner, other = connect(), connect(), connect()
    sql(relay, OUTBOX)
    sql(relay, "INSERT INTO outbox_event (aggregate_id, version) VALUES ('order-7', 1)")
    assert sql(relay, LOCK_AND_MARK) == [(1,)]
    sql(cleaner, "UPDATE outbox_event SET status = 'PENDING', locked_at = NULL"
                 " WHERE status = 'PUBLISHING' AND locked_at <= now() - interval '0 s'")
    assert sql(other, LOCK_AND_MARK) == [(1,)]
    assert sql(relay, "UPDATE outbox_event SET status = 'PUBLISHED' WHERE id = 1") == 1, (
        'and the slow one marks what is not its own any more')


def test_created_at_is_not_the_order_in_which_writers_of_one_aggregate_took_turns(connect):
    early, late, reader = connect(autocommit=False), connect(autocommit=False), connect()
    sql(reader, OUTBOX)
    sql(reader, "CREATE TABLE orders (id text PRIMARY KEY, version int);"
                "INSERT INTO orders VALUES ('order-7', 0)")
    take = "UPDATE orders SET version = version + 1 WHERE id = 'order-7' RETURNING version"
    leave = "INSERT INTO outbox_event (aggregate_id, version) VALUES ('order-7', %s)"
    sql(early, 'SELECT now()')  # its transaction begins here
    for conn in (late, early):  # and yet it is the second to get the order's row
        sql(conn, leave, sql(conn, take)[0])
        conn.commit()
    assert sql(reader, 'SELECT version FROM outbox_event ORDER BY created_at') == [(2,), (1,)]
    assert sql(reader, 'SELECT version FROM outbox_event ORDER BY id') == [(1,), (2,)]


def test_takeover_by_delete_and_insert_has_two_winners(connect):
    one, two = connect(), connect()
    sql(one, "CREATE TABLE idempotency_records (key text PRIMARY KEY, response text DEFAULT '')")
    reserve = "INSERT INTO idempotency_records (key) VALUES ('k') ON CONFLICT (key) DO NOTHING"
    assert sql(one, reserve) == 1  # the one that crashed
    # Both retries read the stale reservation.  Then each deletes and reserves:
    assert sql(one, "DELETE FROM idempotency_records WHERE key = 'k'") == 1
    assert sql(one, reserve) == 1
    assert sql(two, "DELETE FROM idempotency_records WHERE key = 'k'") == 1, 'the fresh one'
    assert sql(two, reserve) == 1

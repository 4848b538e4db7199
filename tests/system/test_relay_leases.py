# SPDX-License-Identifier: Apache-2.0
"""What a relay holds while it waits or is stopped, against the lease of its slots (rules B3, C6)."""
import threading
import time

import psycopg2
import pytest

from support import wait_until
from support.binaries import FULL
from support.relay import Outbox, Relay, drained, in_order

pytestmark = pytest.mark.kafka


def test_c6_o21_single_with_a_broker_slower_than_the_lease(procs, build, pg_store_url, kafka_own):
    """The transaction ends with half of the lease; the batch goes on without it, once."""
    topic = kafka_own.new_topic(3)
    outbox = Outbox(pg_store_url)
    relay = Relay(procs, build, pg_store_url, kafka_own.bootstrap, mode='single', slot_lease='1s',
                  batch_rows=100)
    assert "a batch's transaction has 500 ms" in relay.p.logs()
    outbox.fill(topic, 20000)
    wait_until(lambda: outbox.count() < 19500)
    kafka_own.pause()
    relay.p.wait_log('go on without their transaction', 30)
    in_transaction = """SELECT count(*) FROM pg_stat_activity
                        WHERE application_name LIKE 'semel relay lane%%' AND state LIKE 'idle in%%'"""
    wait_until(lambda: outbox.one(in_transaction) == 0, 10, 'the lanes to let their rows go')
    assert outbox.count() > 0, 'the fault struck no unfinished work'
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() > begun + 2, what='the broker to be slower than the lease, twice')
    assert outbox.one(in_transaction) == 0
    kafka_own.resume()
    outbox.wait_empty(60)
    assert relay.metric('semel_relay_producer_resets_total') == 0
    assert relay.p.terminate(30) == 0, relay.p.logs()
    assert in_order(kafka_own.consume_all(topic)) == (20000, 0)
    outbox.close()


def test_b3_a_session_that_stopped_in_a_send_is_ended_by_another_relay(procs, build, pg, pg_db,
                                                                     pg_store_url, kafka):
    """A statement of a lane without its end, and then silence: no time-out of the server ends it."""
    import ctypes.util
    outbox = Outbox(pg_store_url)
    topic = kafka.new_topic(1)
    half = psycopg2.connect(pg.dsn(pg_db) + " application_name='semel relay lane 7'")
    pq = ctypes.CDLL(ctypes.util.find_library('pq') or 'libpq.so.5')
    for f in (pq.PQenterPipelineMode, pq.PQsendFlushRequest, pq.PQflush, pq.PQsendQueryParams):
        f.argtypes = [ctypes.c_void_p] + ([ctypes.c_char_p, ctypes.c_int] + [ctypes.c_void_p] * 4 +
                                          [ctypes.c_int] if f is pq.PQsendQueryParams else [])
    conn = half.pgconn_ptr
    assert pq.PQenterPipelineMode(conn) == 1
    assert pq.PQsendQueryParams(conn, b'SELECT slot FROM semel.relay_slot FOR UPDATE', 0, None, None,
                                None, None, 0) == 1
    assert pq.PQsendFlushRequest(conn) == 1 and pq.PQflush(conn) == 0
    wait_until(lambda: outbox.one("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND "
                                  "application_name = 'semel relay lane 7'") == 1)
    outbox.fill(topic, 100)
    relay = Relay(procs, build, pg_store_url, kafka.bootstrap, slot_lease='1s')
    relay.p.wait_log('ended 1 database session', 20)
    outbox.wait_empty()
    assert relay.p.terminate(30) == 0, relay.p.logs()
    outbox.close()


def test_o17_a_killed_relay_is_followed_within_its_lease(outbox, start_relay, kafka):
    topic, lease = kafka.new_topic(2), 2
    relays = [start_relay(name=f'relay{i}', slot_lease=f'{lease}s') for i in range(2)]
    wait_until(lambda: [r.metric('semel_relay_owned_slots') for r in relays] == [8, 8], 30, 'they share')
    outbox.fill(topic, 1000)
    outbox.wait_empty()
    outbox.fill(topic, 20000, first=10)
    wait_until(lambda: relays[0].metric('semel_relay_rows_under_way') > 0)
    killed = time.monotonic()
    relays[0].p.kill()
    outbox.fill(topic, 1000, first=210)
    assert outbox.one('SELECT count(DISTINCT slot) FROM semel.outbox') > 8, 'some wait for the dead'
    outbox.wait_empty()
    took = time.monotonic() - killed
    print(f'{took:.2f} s')
    if FULL:  # its lease, a step of the other's renewals, and the work
        assert took < lease + lease / 3 + 1.3
    wait_until(lambda: relays[1].metric('semel_relay_owned_slots') == 16)
    drained(relays[1])
    assert in_order(kafka.consume_all(topic))[0] == 22000


def test_rows_left_publishing_go_back_at_stuck_after_and_under_load(outbox, start_relay, kafka):
    """Not before, by the database's clock, though their owner is gone; and though the new one always has
    something else to do."""
    topic = kafka.new_topic(1)
    outbox.sql('''CREATE TABLE semel.freed (age interval);
        CREATE FUNCTION semel.free() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            INSERT INTO semel.freed VALUES (clock_timestamp() - OLD.locked_at);
            RETURN NEW;
        END$$;
        CREATE TRIGGER free BEFORE UPDATE ON semel.outbox FOR EACH ROW
            WHEN (OLD.status = 'PUBLISHING' AND NEW.status = 'PENDING') EXECUTE FUNCTION semel.free()''')
    relay = start_relay(mode='two-phase', stuck_after='1s', batch_rows=50)
    wait_until(lambda: relay.metric('semel_relay_owned_slots') == 16, 30)
    outbox.sql("""INSERT INTO semel.outbox (topic, key, payload, status, locked_at)
                  SELECT %s, 's' || i % 10, convert_to('s' || i % 10 || ' ' || i / 10, 'UTF8'), 'PUBLISHING',
                         clock_timestamp() FROM generate_series(0, 49) i ORDER BY i""".replace(' % ', ' %% '), topic)
    written, stop = [], threading.Event()

    def write():
        mine = Outbox(outbox.conn.dsn)
        while not stop.is_set():
            if mine.count('PENDING') < 2000:
                mine.fill(topic, 1000, first=10 * len(written))
                written.append(1000)
        mine.close()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: relay.metric('semel_relay_unstuck_rows_total') == 50, 60)
        assert outbox.count('PENDING') > 0  # it never was idle
    finally:
        stop.set()
        writer.join()
    n, least, most = outbox.sql('SELECT count(*), min(extract(epoch FROM age)), max(extract(epoch FROM age)) '
                                'FROM semel.freed')[0]
    print(f'{least:.2f} to {most:.2f} s')
    assert n == 50 and least >= 1
    if FULL:
        assert most < 4
    outbox.wait_empty()
    drained(relay)
    assert in_order(kafka.consume_all(topic)) == (sum(written) + 50, 0)

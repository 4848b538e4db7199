# SPDX-License-Identifier: Apache-2.0
"""What a relay holds while it waits or is stopped, against the lease of its slots (rules B3, C6)."""
import time

import psycopg2
import pytest

from support import wait_until
from support.relay import Outbox, Relay, in_order

pytestmark = pytest.mark.kafka


def test_c6_single_with_a_broker_slower_than_the_lease(procs, build, pg_store_url, kafka_own):
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

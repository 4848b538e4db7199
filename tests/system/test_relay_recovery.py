# SPDX-License-Identifier: Apache-2.0
"""`semel relay --mode exactly-once` on a real PostgreSQL and a real Kafka: what the last marker settles, and
what it does not."""
import pytest

from support import wait_until
from support.relay import drained, in_order

pytestmark = pytest.mark.kafka

ROWS = 40


def committed(kafka, topic):
    return len(kafka.values(topic, 'read_committed'))


def test_c8_what_is_republished_is_sent_again_and_once(outbox, start_relay, semel, pg_store_url, kafka, pg, pg_db):
    """The last marker lists rows that an operator has put back; the next one lists them again, and its relay is
    killed before it has marked them."""
    topic = kafka.new_topic(2)
    options = dict(mode='exactly-once', done='keep', slot_lease='1s')
    first = start_relay(**options)
    outbox.fill(topic, ROWS, keys=10)
    outbox.wait_count('PUBLISHED', ROWS)
    drained(first)
    assert committed(kafka, topic) == ROWS
    r = semel('outbox', 'republish', '--since', '2h', '--db', pg_store_url)
    assert r.returncode == 0 and f'{ROWS} rows wait again' in r.out(), r.logs()
    locker = pg.connect(pg_db, autocommit=False)
    locker.cursor().execute('SELECT 1 FROM semel.outbox FOR UPDATE')
    second = start_relay(name='relay2', **options)
    wait_until(lambda: committed(kafka, topic) == 2 * ROWS, 30, 'all of it is sent again')
    second.p.kill()
    lanes = """FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'semel relay lane%%'"""
    outbox.sql(f'SELECT pg_terminate_backend(pid) {lanes}')  # the server still has the marks, which wait
    wait_until(lambda: outbox.one(f'SELECT count(*) {lanes}') == 0, 30)
    locker.rollback()
    locker.close()
    assert outbox.count('PENDING') == ROWS, 'the fault struck no unfinished work'
    third = start_relay(name='relay3', **options)
    outbox.wait_count('PUBLISHED', ROWS)
    assert third.metric('semel_relay_recovered_rows_total') == ROWS
    drained(third)
    assert in_order(kafka.consume_all(topic, 'read_committed')) == (ROWS, ROWS)

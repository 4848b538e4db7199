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


@pytest.fixture
def published_not_marked(outbox, start_relay, kafka, pg, pg_db):
    """A relay is killed when its transaction is committed and its marks wait for rows that are locked.  Gives who holds
    them on, to be closed."""
    lockers = []

    def lock():
        lockers.append(pg.connect(pg_db, autocommit=False))
        lockers[-1].cursor().execute('SELECT 1 FROM semel.outbox FOR UPDATE')
        return lockers[-1]

    def kill(topic, published, name='relay', **options):
        locker = lock()
        relay = start_relay(name=name, **options)
        wait_until(lambda: committed(kafka, topic) == published, 30, 'its transactions are committed')
        relay.p.kill()
        lanes = """FROM pg_stat_activity WHERE datname = current_database() AND
                   application_name LIKE 'semel relay lane%%'"""
        outbox.sql(f'SELECT pg_terminate_backend(pid) {lanes}')  # the server still has the marks
        wait_until(lambda: outbox.one(f'SELECT count(*) {lanes}') == 0, 30)
        assert outbox.count('PENDING') == ROWS, 'the fault struck no unfinished work'
        return locker
    yield kill
    for locker in lockers:
        locker.close()


def test_c8_what_is_republished_is_sent_again_and_once(outbox, start_relay, semel, pg_store_url, kafka, published_not_marked):
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
    published_not_marked(topic, 2 * ROWS, name='relay2', **options).close()
    third = start_relay(name='relay3', **options)
    outbox.wait_count('PUBLISHED', ROWS)
    assert third.metric('semel_relay_recovered_rows_total') == ROWS
    drained(third)
    assert in_order(kafka.consume_all(topic, 'read_committed')) == (ROWS, ROWS)


def test_c8a_who_ends_before_it_has_recovered_does_not_free_the_mode(outbox, start_relay, kafka, published_not_marked):
    """The next relay in that mode is stopped before it can: its recovery waits for the same rows."""
    topic = kafka.new_topic(2)
    options = dict(mode='exactly-once', slot_lease='1s')
    outbox.fill(topic, ROWS, keys=10)
    locker = published_not_marked(topic, ROWS, **options)
    second = start_relay(name='relay2', **options)
    wait_until(lambda: second.metric('semel_relay_owned_slots') == 16, 30)
    drained(second)
    locker.close()
    assert outbox.count('PENDING') == ROWS, 'the fault struck no unfinished work'
    other = start_relay(name='other', mode='owned')
    other.p.wait_log('waiting for slots: the outbox is in mode exactly-once', 20)
    drained(other)
    third = start_relay(name='relay3', mode='exactly-once')
    wait_until(lambda: third.metric('semel_relay_recovered_rows_total') == ROWS, 20)
    drained(third)
    other = start_relay(name='other2', mode='owned')
    wait_until(lambda: other.metric('semel_relay_owned_slots') == 16, 30)
    outbox.fill(topic, ROWS, keys=10, first=ROWS // 10)
    outbox.wait_empty()
    drained(other)
    assert in_order(kafka.consume_all(topic, 'read_committed')) == (2 * ROWS, 0)

# SPDX-License-Identifier: Apache-2.0
"""What the rules D1 to D5 ask of the engine of `semel consume` and a mutant of it must not survive
(tests/mutants); the rest of them is in test_consume.py."""
import pytest

from support.wait import wait_until
from test_consume import World, event

pytestmark = pytest.mark.kafka

SLOW = 'move ' + ','.join(['1'] * 30)  # its handler takes one and a half seconds


@pytest.fixture
def world(procs, build, kafka, pg, pg_db, pg_store_url):
    return World(procs, build, kafka, pg, pg_db, pg_store_url)


def test_d3_o79_reasons_and_keys_of_any_bytes_do_not_hold_their_partition(world):
    """What the handler says is longer than what is kept of it, and one of both is cut in a character."""
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event(i, f'poison {"x" * i}{"ж" * 900}', key='k' * 5000) for i in range(2)] +
                        [event(2)])
    p = world.start(topic, '--attempts-max', '1', '--dead-topic', 'orders.dead')
    world.wait_effects(1)
    assert world.dead() == 2
    assert world.value("SELECT count(*) FROM semel.dead_letter WHERE reason LIKE '%poison x%ж'") == 1
    assert world.value('SELECT count(*) FROM semel.outbox WHERE key IS NULL') == 2
    assert p.terminate() == 0


def test_d3_a_letter_says_why_its_event_failed_and_not_why_it_was_late(world):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    with world.pg.connect(world.db) as blocker:
        blocker.cursor().execute('LOCK TABLE semel.dead_letter IN ACCESS EXCLUSIVE MODE')
        world.kafka.produce(topic, [event(1, 'poison')])
        p = world.start(topic, '--attempts-max', '1')
        wait_until(lambda: world.metric(p, 'semel_consume_transient_total') > 0, 40)
        blocker.rollback()
    wait_until(lambda: world.dead() == 1, 20)
    assert 'I do not like poison' in world.value('SELECT reason FROM semel.dead_letter')
    assert p.terminate() == 0


def test_d3_at_a_start_the_first_event_that_is_not_recorded_is_counted(world):
    """Not the one that the broker delivers first: whoever died may have been behind it."""
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(i) for i in range(20)])
    p = world.start(topic)
    world.wait_committed(topic, 20)
    assert p.terminate() == 0
    world.kafka.produce(topic, [event(20, SLOW)])
    p = world.start(topic, '--consumer', world.group, group=world.group + 'lost')
    tries = 'SELECT (SELECT min(event_id) FROM semel.inbox_attempt WHERE attempts = 1)'
    wait_until(lambda: world.value(tries) == event(20)[2][0][1], 20)
    p.kill()
    assert world.effects() == 20


def test_d4_what_runs_is_finished_and_its_offset_told_before_a_partition_goes(world):
    """Then the new owner does not even see it."""
    topic = world.kafka.new_topic(2)
    options = ('--kafka', 'heartbeat.interval.ms=200')
    a = world.start(topic, *options)
    world.kafka.produce(topic, [event(i, SLOW, key=f'k{i}') for i in range(8)])
    running = ("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT apply%' AND "
               "state = 'active'")
    wait_until(lambda: world.value(running) > 0, 20)
    b = world.start(topic, *options)
    world.wait_committed(topic, 8, 2)
    assert world.effects() == 8
    assert [world.metric(p, 'semel_consume_duplicates_total') for p in (a, b)] == [0, 0]
    assert world.metric(b, 'semel_consume_processed_total') > 0, 'nothing was handed over'
    assert a.terminate() == 0 and b.terminate() == 0


def test_d4_the_offset_is_not_told_while_its_transaction_is_open(world):
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1, 'one')])
    p = world.start(topic)
    world.wait_committed(topic, 1)
    world.kafka.produce(topic, [event(2, 'move ' + ','.join(['1'] * 400))])  # twenty seconds
    world.kafka.produce(topic, [event(3)])
    runs_for_long = ("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT apply%' AND state = "
                     "'active' AND clock_timestamp() > query_start + interval '1 second'")
    wait_until(lambda: world.value(runs_for_long) == 1, 20)  # offsets are told each 200 ms
    looks = [world.committed(topic) for _ in range(3)]
    p.kill()
    assert looks == [1] * 3
    assert world.committed(topic) == 1


def test_d5_what_is_remembered_by_default_outlasts_a_topic_by_default(world):
    week = str(7 * 86400 * 1000)  # Kafka's own default for both: it deletes whole segments, by their youngest event
    topic = world.kafka.new_topic(config={'retention.ms': week, 'segment.ms': week})
    p = world.start(topic)
    assert p.terminate() == 0
    assert 'warning' not in p.err(), p.err()

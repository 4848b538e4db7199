# SPDX-License-Identifier: Apache-2.0
"""`semel relay` on a real PostgreSQL and a real Kafka: each mode delivers, in order per key; rows
that fail wait, retry, or die alone; it ends as it is told."""
import os
import signal

import pytest

from support import wait_until
from support.relay import Outbox, Relay, drained, in_order, lost_nothing

pytestmark = pytest.mark.kafka

MODES = ['owned', 'single', 'two-phase', 'exactly-once']


@pytest.mark.parametrize('mode', MODES)
def test_each_mode_delivers_in_order(outbox, start_relay, kafka, mode):
    topic = kafka.new_topic(6)
    outbox.fill(topic, 3000)
    ids = {r[0] for r in outbox.sql('SELECT event_id::text FROM semel.outbox')}
    relay = start_relay(mode=mode, batch_rows=500)
    outbox.wait_empty()
    outbox.fill(topic, 300, keys=7)  # while it is idle
    outbox.wait_empty()
    drained(relay)
    messages = kafka.consume_all(topic)
    assert len(messages) == 3300
    assert in_order([m for m in messages if dict(m[4])['event-id'].decode() in ids]) == (3000, 0)


def test_a_message_is_what_the_row_says(outbox, start_relay, kafka):
    topic = kafka.new_topic(1)
    outbox.sql('''INSERT INTO semel.outbox (topic, key, payload, headers, traceparent) VALUES
                  (%s, 'k', 'p', '{"a": "1", "n": null}', '00-aa-bb-01')''', topic)
    outbox.sql("INSERT INTO semel.outbox (topic, key, payload) VALUES (%s, 'k', NULL), (%s, 'k', '')",
               topic, topic)
    outbox.sql("INSERT INTO semel.outbox (topic, key, payload) VALUES (%s, NULL, 'no key')", topic)
    relay = start_relay()
    outbox.wait_empty()
    drained(relay)
    by_value = {m[3]: m for m in kafka.consume_all(topic)}
    headers = by_value[b'p'][4]
    assert [h[0] for h in headers] == ['event-id', 'traceparent', 'a', 'n']
    assert headers[1:] == [('traceparent', b'00-aa-bb-01'), ('a', b'1'), ('n', None)]
    assert by_value[None][2] == b'k' and by_value[b''][2] == b'k'
    assert by_value[b'no key'][2] is None


@pytest.mark.parametrize('mode', MODES)
def test_o31_poison_at_the_head_dies_alone(outbox, start_relay, kafka, mode):
    """Twice a batch of rows that the topic never takes, some of one key, then good ones."""
    small, good = kafka.new_topic(2, {'max.message.bytes': '2000'}), kafka.new_topic(2)
    outbox.fill(small, 150, keys=1, size=3000)
    outbox.fill(small, 150, keys=150, size=3000)
    outbox.fill(small, 200, keys=20, size=500)
    outbox.fill(good, 200, keys=20)
    relay = start_relay(mode=mode, batch_rows=150)
    outbox.wait_count('PENDING', 0)
    wait_until(lambda: outbox.count() == 300)
    assert outbox.count('DEAD') == 300
    reasons = outbox.sql("SELECT DISTINCT left(last_error, 18), attempts FROM semel.outbox")
    assert reasons == [('MSG_SIZE_TOO_LARGE', 1)]
    assert relay.rows('dead') == 300
    assert relay.rows('retried') == 0
    drained(relay)
    assert len(kafka.values(good)) == 200
    assert len(kafka.values(small)) == 200


@pytest.mark.parametrize('mode', MODES)
def test_c7_one_record_that_is_refused_takes_no_other_with_it(outbox, start_relay, kafka, mode):
    """A compacted topic takes no record without a key: the broker refuses the whole batch that has one, and does
    not say which."""
    topic = kafka.new_topic(1, {'cleanup.policy': 'compact'})
    outbox.sql('''INSERT INTO semel.outbox (topic, key, payload)
                  SELECT %s, CASE WHEN i NOT IN (77, 350) THEN 'k' || i %% 20 END, convert_to(i::text, 'UTF8')
                  FROM generate_series(1, 400) i ORDER BY i''', topic)
    relay = start_relay(mode=mode)
    wait_until(lambda: outbox.count('PENDING') == 0 and outbox.count('PUBLISHING') == 0)
    dead = outbox.sql("SELECT convert_from(payload, 'UTF8'), attempts, left(last_error, 14) FROM semel.outbox")
    assert sorted(dead) == [('350', 1, 'INVALID_RECORD'), ('77', 1, 'INVALID_RECORD')]
    overtaken = relay.metric('semel_relay_overtaken_rows_total')
    drained(relay)
    values = kafka.values(topic)
    assert len(set(values)) == 398
    for k in range(20):
        ours = [int(v) for v in dict.fromkeys(values) if int(v) % 20 == k]
        assert overtaken or ours == sorted(ours), k


@pytest.mark.parametrize('mode', MODES)
def test_c4_a_key_waits_behind_its_failed_row_and_others_flow(outbox, start_relay, kafka, mode):
    """The first row of key a goes to a topic that is not there yet."""
    topic, late = kafka.new_topic(1), f'late{os.getpid()}-{mode}'
    kafka_settings = ('--kafka', 'allow.auto.create.topics=false')
    outbox.add(late, [('a', b'1')])
    outbox.add(topic, [('a', b'2'), ('b', b'1'), ('a', b'3'), (None, b'free')])
    relay = start_relay(mode=mode, retry_min='20ms', retry_max='100ms', attempts_max=3,
                  args=kafka_settings)
    wait_until(lambda: outbox.count() == 3, 30)
    wait_until(lambda: relay.rows('retried') >= 5, 30)  # O35: an unknown topic kills nothing yet
    assert outbox.count('DEAD') == 0
    assert sorted(kafka.values(topic)) == [b'1', b'free']
    kafka.create_topic(late)
    outbox.wait_empty()
    drained(relay)
    assert kafka.values(late) == [b'1']
    assert [v for v in kafka.values(topic) if v != b'free'] == [b'1', b'2', b'3']


def test_c4_fewer_replicas_than_min_insync_stop_nothing(outbox, start_relay, kafka):
    """It wants two replicas in sync and has one in all: Kafka takes what all replicas have."""
    topic = kafka.new_topic(1, {'min.insync.replicas': '2'})
    relay = start_relay()
    outbox.add(topic, [('a', b'1'), (None, b'2')])
    outbox.wait_empty(20)
    drained(relay)
    assert sorted(kafka.values(topic)) == [b'1', b'2']


@pytest.mark.parametrize('on_dead', ['skip', 'block'])
def test_a_dead_row_lets_its_key_go_or_blocks_it(outbox, start_relay, kafka, semel, pg_store_url, on_dead):
    topic = kafka.new_topic(1, {'max.message.bytes': '2000'})
    outbox.add(topic, [('a', b'x' * 3000), ('a', b'after'), ('b', b'other')])
    relay = start_relay(on_dead=on_dead)
    outbox.wait_count('DEAD', 1)
    if on_dead == 'skip':
        outbox.wait_count('PENDING', 0)
        drained(relay)
        assert kafka.values(topic) == [b'after', b'other'] or sorted(kafka.values(topic)) == [
            b'after', b'other']
        return
    wait_until(lambda: kafka.values(topic) == [b'other'])
    assert outbox.count('PENDING') == 1
    drained(relay)
    relay = start_relay(on_dead=on_dead)  # C5: a new owner finds it blocked too
    wait_until(lambda: relay.metric('semel_relay_owned_slots') == 16)
    outbox.add(topic, [('c', b'more')])
    wait_until(lambda: sorted(kafka.values(topic)) == [b'more', b'other'])
    assert outbox.count('PENDING') == 1
    dead = outbox.one("SELECT id FROM semel.outbox WHERE status = 'DEAD'")
    r = semel('outbox', 'discard', str(dead), '--reason', 'test', '--db', pg_store_url)
    assert r.returncode == 0, r.logs()
    outbox.wait_empty()
    drained(relay)
    assert sorted(kafka.values(topic)) == [b'after', b'more', b'other']


@pytest.mark.parametrize('mode', MODES)
def test_o25_sigterm_under_load_finishes_the_batch(outbox, start_relay, kafka, mode):
    topic = kafka.new_topic(3)
    outbox.fill(topic, 20000)
    relay = start_relay(mode=mode, batch_rows=200)
    wait_until(lambda: outbox.count() < 19000)
    drained(relay)
    left = outbox.count()
    assert 0 < left < 20000
    assert outbox.count('PENDING') == left  # nothing is PUBLISHING
    assert outbox.one('SELECT count(*) FROM semel.relay_slot WHERE owner IS NOT NULL') == 0
    distinct, duplicates = in_order(kafka.consume_all(topic))
    assert (distinct, duplicates) == (20000 - left, 0)


@pytest.mark.parametrize('mode', MODES)
def test_c1_a_relay_that_lost_its_slots_hands_out_nothing_more(outbox, start_relay, kafka, mode):
    topic = kafka.new_topic(3)
    first = start_relay(mode=mode, batch_rows=100, slot_lease='1s', lanes=1)
    wait_until(lambda: first.metric('semel_relay_owned_slots') == 16)
    outbox.fill(topic, 30000)
    wait_until(lambda: outbox.count() < 29500, 60)
    first.p.stop()
    assert outbox.count() > 1000, 'the fault struck no unfinished work'
    second = start_relay(mode=mode, batch_rows=500, slot_lease='1s', stuck_after='1s', name='relay2')
    wait_until(lambda: second.metric('semel_relay_owned_slots') == 16, 30)
    first.p.cont()
    first.p.wait_log('lost slot', 20)
    outbox.wait_empty(90)
    wait_until(lambda: first.metric('semel_relay_lost_slots_total') >= 8, 30)
    drained(first)
    drained(second)
    distinct, duplicates = in_order(kafka.consume_all(topic))
    assert distinct == 30000
    assert duplicates <= (0 if mode == 'exactly-once' else 2 * 100)  # C12


def test_relays_share_and_hand_over(outbox, start_relay, kafka):
    topic = kafka.new_topic(3)
    one = start_relay()
    wait_until(lambda: one.metric('semel_relay_owned_slots') == 16)
    outbox.fill(topic, 20000)
    two = start_relay(name='relay2')
    wait_until(lambda: two.metric('semel_relay_owned_slots') == 8 and
               one.metric('semel_relay_owned_slots') == 8, 30)
    outbox.fill(topic, 20000, keys=50)
    lost_nothing(one)
    drained(one)
    wait_until(lambda: two.metric('semel_relay_owned_slots') == 16, 30)
    outbox.wait_empty()
    assert one.p.returncode == 0
    lost_nothing(two)
    drained(two)
    messages = kafka.consume_all(topic)
    assert len(messages) == 40000  # C2: a hand-over sends nothing twice


@pytest.mark.parametrize('mode, shares', [('owned', [3, 3, 3, 3, 4]), ('exactly-once', [4, 4, 8])])
def test_c1_shares_differ_by_one_at_most(start_relay, mode, shares):
    """Whoever comes last finds nothing free, and gets his part of who has more."""
    relays = [start_relay(mode=mode, slot_lease='2s')]
    wait_until(lambda: relays[0].metric('semel_relay_owned_slots') == 16)
    relays += [start_relay(mode=mode, slot_lease='2s', name=f'relay{i}') for i in range(2, len(shares) + 1)]
    wait_until(lambda: sorted(r.metric('semel_relay_owned_slots') for r in relays) == shares, 60)
    drained(*relays)


def test_c8a_a_relay_that_waits_for_its_mode_takes_no_share(outbox, start_relay, kafka):
    topic = kafka.new_topic(3)
    one = start_relay(slot_lease='2s')
    wait_until(lambda: one.metric('semel_relay_owned_slots') == 16)
    two = start_relay(mode='two-phase', slot_lease='2s', name='relay2')
    two.p.wait_log('waiting for slots: the outbox is in mode owned', 20)
    assert outbox.one('SELECT count(*) FROM semel.relay_member') == 1, 'who waits is a member'
    outbox.fill(topic, 1000)
    outbox.wait_empty()
    assert one.metric('semel_relay_owned_slots') == 16
    drained(one)
    wait_until(lambda: two.metric('semel_relay_owned_slots') == 16, 30)
    outbox.fill(topic, 1000, first=10)
    outbox.wait_empty()
    drained(two)
    assert in_order(kafka.consume_all(topic)) == (2000, 0)


def test_a_database_that_restarts_loses_nothing(procs, build, semel, pg_own, kafka):
    name = pg_own.new_database()
    url = pg_own.url(name)
    assert semel('migrate', '--db', url).returncode == 0
    outbox = Outbox(url)
    topic = kafka.new_topic(3)
    outbox.fill(topic, 20000)
    relay = Relay(procs, build, url, kafka.bootstrap, batch_rows=200)
    wait_until(lambda: relay.rows('published') > 500)
    pg_own.stop('immediate')
    wait_until(lambda: not relay.ready(), 20)
    pg_own.start()
    outbox = Outbox(url)
    assert outbox.count() > 0, 'the fault struck no unfinished work'
    outbox.wait_empty(60)
    wait_until(relay.ready, 20)
    drained(relay)
    distinct, duplicates = in_order(kafka.consume_all(topic))
    assert distinct == 20000 and duplicates <= 400


def test_errors_say_what_to_do(semel, pg_url, pg_store_url, sqlite_url, kafka, procs, build):
    r = semel('relay', '--db', pg_store_url)
    assert r.returncode == 64 and '--brokers' in r.err()
    r = semel('relay', '--db', pg_url.replace('/test', '/test'), '--brokers', kafka.bootstrap,
              '--mode', 'twophase')
    assert r.returncode == 64 and 'two-phase' in r.err()
    r = semel('relay', '--db', sqlite_url, '--brokers', kafka.bootstrap, '--mode', 'single')
    assert r.returncode == 64 and 'owned' in r.err()
    r = semel('relay', '--db', pg_store_url, '--brokers', kafka.bootstrap, '--kafka', 'acks=1')
    assert r.returncode == 64 and 'acks' in r.err()
    mock = procs.start([build.semel, 'dev-broker'], name='dev-broker')
    address = mock.wait_log(r'(?m)^(127\.0\.0\.1:\d+)').group(1)
    r = semel('relay', '--db', pg_store_url, '--brokers', address, '--mode', 'exactly-once')
    assert r.returncode == 64 and 'real Kafka' in r.err()
    mock.send(signal.SIGTERM)
    mock.wait()

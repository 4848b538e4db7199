# SPDX-License-Identifier: Apache-2.0
"""`semel dev-broker` speaks Kafka's protocol, says what it is not, and ends as it is told."""
import signal

import confluent_kafka
import pytest
from confluent_kafka import admin

from support import wait_until
from support.kafka import quiet


pytestmark = pytest.mark.kafka


def start(procs, build, *args):
    p = procs.start([build.semel, 'dev-broker', *args], name='dev-broker')
    address = p.wait_log(r'(?m)^(127\.0\.0\.1:\d+(?:,127\.0\.0\.1:\d+)*)$').group(1)
    return p, address


def test_a_message_goes_through_and_topics_have_their_partitions(procs, build, tmp):
    ready = tmp / 'ready'
    p, address = start(procs, build, '--topic', 'orders=3', '--topic', 'pay', '--partitions', '2',
                       '--ready-file', ready)
    assert wait_until(ready.exists, 5) and ready.read_text() == address + '\n'
    topics = admin.AdminClient(quiet(address)).list_topics(timeout=10).topics
    assert {t: len(m.partitions) for t, m in topics.items()} == {'orders': 3, 'pay': 2}

    producer = confluent_kafka.Producer(quiet(address))
    producer.produce('orders', b'value', b'key')
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer(quiet(address, group_id='g', auto_offset_reset='earliest'))
    consumer.subscribe(['orders'])
    message = wait_until(lambda: consumer.poll(1.0), 20)
    assert (message.key(), message.value()) == (b'key', b'value')
    consumer.close()

    assert p.terminate() == 0
    assert not ready.exists()


def test_it_says_what_it_is_not_and_several_brokers_have_a_port_each(procs, build):
    p, address = start(procs, build, '--brokers', '3')
    assert len(set(address.split(','))) == 3
    for words in ('nothing survives', '5 MB', 'exactly-once'):
        assert words in p.err()
    p.send(signal.SIGINT)
    assert p.wait() == 0


def test_nonsense_is_refused(semel):
    assert 'partitions' in semel('dev-broker', '--topic', 'x=99').err()
    assert semel('dev-broker', '--topic', '=3').returncode == 64
    assert semel('dev-broker', '--brokers', '99').returncode == 64
    assert semel('dev-broker', 'orders').returncode == 64

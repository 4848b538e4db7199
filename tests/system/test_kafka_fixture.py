# SPDX-License-Identifier: Apache-2.0
"""The Kafka fixture does what other tests rely on."""
from support import wait_until


def test_messages_come_back_with_partition_key_and_headers(kafka):
    topic = kafka.new_topic(partitions=3)
    kafka.produce(topic, [(b'k', b'one', [('h', b'1')]), (b'k', b'two'), (b'k', None)])
    got = kafka.consume_all(topic)
    assert [m[1:4] for m in got] == [(0, b'k', b'one'), (1, b'k', b'two'), (2, b'k', None)]
    assert got[0][4] == [('h', b'1')]
    assert len({m[0] for m in got}) == 1


def test_a_broker_of_ones_own_dies_and_keeps_its_messages(kafka_own):
    topic, before = kafka_own.new_topic(config={'max.message.bytes': '2000'}), kafka_own.bootstrap
    kafka_own.produce(topic, [(None, b'kept')])
    kafka_own.restart(kill=True)
    assert kafka_own.bootstrap == before
    assert wait_until(lambda: kafka_own.values(topic), 20) == [b'kept']


def test_a_paused_broker_goes_on(kafka_own):
    topic = kafka_own.new_topic()
    kafka_own.pause()
    kafka_own.resume()
    kafka_own.produce(topic, [(None, b'x')])
    assert kafka_own.values(topic) == [b'x']

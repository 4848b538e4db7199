# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker of the tests' own (tests/support/kafka), with what tests want to do to it and
see of it, through librdkafka's Python client."""
import itertools
import os
import pathlib
import sys
import time

import confluent_kafka
from confluent_kafka import admin

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'support' / 'kafka'))
from kafka_server import NoKafka, Server  # noqa: E402

__all__ = ['Kafka', 'NoKafka', 'consume_all', 'create_topic']


def quiet(bootstrap, **more):
    return {'bootstrap.servers': bootstrap, 'log_level': 0,
            **{k.replace('_', '.'): v for k, v in more.items()}}


def create_topic(bootstrap, name, partitions=1, config=None):
    """Make it and wait until it can be used; returns the name."""
    a = admin.AdminClient(quiet(bootstrap))
    future = a.create_topics([admin.NewTopic(name, partitions, 1, config=config or {})],
                             operation_timeout=15)[name]
    future.result(20)
    return name


def consume_all(bootstrap, topic, isolation='read_committed', timeout=30.0):
    """All messages, each partition read to its end as it is now: a list of (partition, offset, key,
    value, headers), by partition and offset.  headers: a list of (name, bytes or None)."""
    c = confluent_kafka.Consumer(quiet(
        bootstrap, group_id='consume-all', enable_auto_commit=False, enable_partition_eof=True,
        auto_offset_reset='earliest', isolation_level=isolation, fetch_wait_max_ms=20))
    try:
        meta = c.list_topics(topic, timeout).topics[topic]
        if meta.error is not None:
            raise confluent_kafka.KafkaException(meta.error)
        open_ = set(meta.partitions)
        c.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING)
                  for p in open_])
        out, end = [], time.monotonic() + timeout
        while open_:
            if time.monotonic() > end:
                raise TimeoutError(f'{topic}: partitions {sorted(open_)} have no end')
            m = c.poll(0.2)
            if m is None:
                continue
            if m.error() is None:
                out.append((m.partition(), m.offset(), m.key(), m.value(), m.headers() or []))
            elif m.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                open_.discard(m.partition())
            elif m.error().fatal():
                raise confluent_kafka.KafkaException(m.error())
        return sorted(out, key=lambda m: m[:2])
    finally:
        c.close()


class Kafka(Server):
    """server.bootstrap; start() stop() kill() restart() pause() resume() close()."""
    _names = itertools.count(1)

    def create_topic(self, name, partitions=1, config=None):
        return create_topic(self.bootstrap, name, partitions, config)

    def new_topic(self, partitions=1, config=None):
        """A topic that no other test has; returns its name."""
        return self.create_topic(f't{os.getpid()}-{next(self._names)}', partitions, config)

    def consume_all(self, topic, isolation='read_committed', timeout=30.0):
        return consume_all(self.bootstrap, topic, isolation, timeout)

    def values(self, topic, isolation='read_committed'):
        """Only the values, partition by partition, in order."""
        return [m[3] for m in self.consume_all(topic, isolation)]

    def timestamps(self, topic):
        """(value, milliseconds since 1970) of each message of a topic of one partition: when its
        producer was given it."""
        c = confluent_kafka.Consumer(quiet(self.bootstrap, group_id='timestamps', fetch_wait_max_ms=20))
        try:
            n = len(self.values(topic))
            c.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
            got = c.consume(n, 30)
            return [(m.value(), m.timestamp()[1]) for m in got]
        finally:
            c.close()

    def produce(self, topic, messages):
        """messages: (key, value) or (key, value, headers) each; in order, acknowledged."""
        p = confluent_kafka.Producer(quiet(self.bootstrap, enable_idempotence=True,
                                           partitioner='murmur2_random'))
        for key, value, *headers in messages:
            p.produce(topic, value, key, headers=headers[0] if headers else None)
        assert p.flush(30) == 0, f'{topic}: not all messages were taken'

    def committed(self, group, topic, partitions=1):
        """{partition: committed offset} of a group; -1001 where there is none."""
        c = confluent_kafka.Consumer(quiet(self.bootstrap, group_id=group))
        try:
            got = c.committed([confluent_kafka.TopicPartition(topic, p) for p in range(partitions)],
                              15)
            return {t.partition: t.offset for t in got}
        finally:
            c.close()

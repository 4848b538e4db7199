# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker of the tests' own (tests/support/kafka), with what tests want to do to it and
see of it, through librdkafka's Python client."""
import base64
import itertools
import os
import time
import uuid

import confluent_kafka
from confluent_kafka import admin

from kafka_server import NoKafka, Server, format_data
from ports import free_ports

__all__ = ['Kafka', 'NoKafka', 'consume_all', 'create_topic', 'format_data']


def quiet(bootstrap, **more):
    return {'bootstrap.servers': bootstrap, 'log_level': 0,
            **{k.replace('_', '.'): v for k, v in more.items()}}


def create_topic(bootstrap, name, partitions=1, config=None, replicas=1):
    """Make it and wait until it can be used; returns the name."""
    a = admin.AdminClient(quiet(bootstrap))
    future = a.create_topics([admin.NewTopic(name, partitions, replicas, config=config or {})],
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


class Client:
    """What tests want of whatever has a `bootstrap`."""
    _names = itertools.count(1)
    replicas = 1

    def create_topic(self, name, partitions=1, config=None):
        return create_topic(self.bootstrap, name, partitions, config, self.replicas)

    def new_topic(self, partitions=1, config=None):
        """A topic that no other test has; returns its name."""
        return self.create_topic(f't{os.getpid()}-{next(self._names)}', partitions, config)

    def set_topic(self, topic, config):
        a = admin.AdminClient(quiet(self.bootstrap))
        for future in a.alter_configs([admin.ConfigResource('topic', topic, set_config=config)]).values():
            future.result(20)

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

    def leaders(self, topic):
        """{partition: node id of its leader; -1: none now}, and {partition: node ids of its in-sync
        replicas}."""
        a = admin.AdminClient(quiet(self.bootstrap))
        t = a.list_topics(topic, 10).topics[topic].partitions
        return {p: m.leader for p, m in t.items()}, {p: sorted(m.isrs) for p, m in t.items()}

    def committed(self, group, topic, partitions=1):
        """{partition: committed offset} of a group; -1001 where there is none."""
        c = confluent_kafka.Consumer(quiet(self.bootstrap, group_id=group))
        try:
            got = c.committed([confluent_kafka.TopicPartition(topic, p) for p in range(partitions)],
                              15)
            return {t.partition: t.offset for t in got}
        finally:
            c.close()


class Kafka(Client, Server):
    """server.bootstrap; start() stop() kill() restart() pause() resume() close()."""


class Node(Server):
    """One broker of a Cluster."""

    def __init__(self, number):
        self.number = number
        super().__init__()

    def make_data(self):
        super().make_data()
        meta = self.data / 'meta.properties'
        lines = [line for line in meta.read_text().splitlines()
                 if not line.startswith(('node.id', 'directory.id'))]
        own = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip('=')
        meta.write_text('\n'.join([*lines, f'node.id={self.number}', f'directory.id={own}']) + '\n')


class Cluster(Client):
    """Brokers that are controllers too; everything is kept by each of three, and two must have it."""
    replicas = 3
    KEPT = {'default.replication.factor': 3, 'min.insync.replicas': 2,
            'offsets.topic.replication.factor': 3, 'transaction.state.log.replication.factor': 3,
            'transaction.state.log.min.isr': 2, 'controlled.shutdown.enable': 'true',
            # a node that was killed is missed, and taken back, soon
            'replica.lag.time.max.ms': 3000, 'broker.session.timeout.ms': 1500,
            'broker.heartbeat.interval.ms': 250, 'controller.quorum.election.timeout.ms': 500,
            'controller.quorum.fetch.timeout.ms': 1000, 'controller.quorum.election.backoff.max.ms': 500}

    def __init__(self):
        self.nodes = {n: Node(n) for n in range(1, self.replicas + 1)}

    @property
    def bootstrap(self):
        return ','.join(n.bootstrap for n in self.nodes.values())

    def start(self):
        places = {n: free_ports(2) for n in self.nodes}
        voters = ','.join(f'{n}@127.0.0.1:{p[1]}' for n, p in places.items())
        for n, node in self.nodes.items():
            node.settings = {**self.KEPT, 'node.id': n, 'controller.quorum.voters': voters}
            node.configure(*places[n])
        return self.start_again()

    def start_again(self):
        """All of them, at the places that they have: none serves before most are there."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_it_serves()
        return self

    def close(self):
        for node in self.nodes.values():
            node.close()

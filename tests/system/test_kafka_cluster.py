# SPDX-License-Identifier: Apache-2.0
"""`semel relay` and `semel consume` on three brokers (everything kept three times, two must have it), of
which one is killed amid the work and comes back, and another is stopped: every committed event is in
the log, in the order of its key; exactly-once shows none twice; each has its effect once."""
import pytest

from conftest import start_kafka
from support import wait_until
from support.kafka_log import lost_markers
from support.relay import Outbox, Relay, drained, in_order

pytestmark = pytest.mark.kafka

ROWS, KEYS, PARTITIONS, BATCH, LANES = 12000, 100, 6, 100, 2
MARKERS = 'cluster.marker'
EFFECT = 'INSERT INTO effect (id, key) VALUES ($3, $1)'


@pytest.fixture
def cluster():
    from support.kafka import Cluster
    brokers = start_kafka(Cluster)
    yield brokers
    brokers.close()


class World:
    """A database, a topic, a relay and a consumer."""

    def __init__(self, procs, build, semel, pg, cluster, mode):
        url = pg.url(pg.new_database())
        assert semel('migrate', '--db', url).returncode == 0
        self.mode, self.cluster = mode, cluster
        self.outbox, self.topic = Outbox(url), cluster.new_topic(PARTITIONS)
        self.outbox.sql('CREATE TABLE effect (id text, key text)')
        self.relay = Relay(procs, build, url, cluster.bootstrap, name=f'relay-{mode}', mode=mode,
                           batch_rows=BATCH, lanes=LANES, env={'SEMEL_MARKER_TOPIC': MARKERS})
        self.consumer = procs.start(
            [build.semel, 'consume', '--db', url, '--brokers', cluster.bootstrap, '--topic', self.topic,
             '--group', self.topic, '--sql', EFFECT], name=f'consume-{mode}')

    def fill(self, part):
        self.outbox.fill(self.topic, ROWS, KEYS, first=part * ROWS // KEYS)

    def under_way(self):
        """Some of the rows are published by now."""
        return self.outbox.count() < ROWS - BATCH

    def is_struck(self):
        left = self.outbox.count()
        print(f'{self.mode}: the fault left {left} of {ROWS} rows')
        assert left > 0, f'{self.mode}: the fault struck no unfinished work'

    def effects(self):
        return self.outbox.one('SELECT count(*) FROM effect')

    def check(self, rows):
        isolation = 'read_committed' if self.mode == 'exactly-once' else 'read_uncommitted'
        distinct, duplicates = in_order(self.cluster.consume_all(self.topic, isolation))
        print(f'{self.mode}: {distinct} events, {duplicates} duplicates')
        assert distinct == rows
        assert duplicates <= (0 if self.mode == 'exactly-once' else 2 * LANES * BATCH)  # C12
        assert self.outbox.one('SELECT count(DISTINCT id) FROM effect') == self.effects() == rows
        assert self.outbox.one('SELECT count(*) FROM semel.dead_letter') == 0


def in_sync(cluster, *topics):
    return all(len(r) == cluster.replicas for t in topics for r in cluster.leaders(t)[1].values())


def strike(worlds, part, fault):
    """Amid the work of all of them; two brokers are enough for what is left."""
    for w in worlds:
        w.fill(part)
    for w in worlds:
        wait_until(w.under_way, 30, 'work under way')
    fault()
    for w in worlds:
        w.is_struck()
    for w in worlds:
        w.outbox.wait_empty()


def test_a_broker_is_killed_and_comes_back_and_another_is_stopped(procs, build, semel, pg, cluster):
    worlds = [World(procs, build, semel, pg, cluster, mode) for mode in ('exactly-once', 'owned')]
    for w in worlds:
        w.consumer.wait_log('assigned', 30)
    # it leads partitions of both topics, and coordinates the transactions
    killed = cluster.nodes[cluster.leaders('__transaction_state')[0][0]]
    assert all(killed.number in cluster.leaders(w.topic)[0].values() for w in worlds)
    strike(worlds, 0, killed.kill)
    killed.start()
    wait_until(lambda: in_sync(cluster, *(w.topic for w in worlds), '__transaction_state', '__consumer_offsets'),
               30, 'three replicas in sync')
    # the one that took over
    stopped = cluster.nodes[cluster.leaders('__transaction_state')[0][0]]
    assert stopped is not killed
    strike(worlds, 1, stopped.stop)
    for w in worlds:
        wait_until(lambda w=w: w.effects() == 2 * ROWS, 60, 'all effects')
        drained(w.relay, w.consumer)
    lost = [lost_markers(n.data, (worlds[0].topic, MARKERS)) for n in cluster.nodes.values()]
    assert lost == [[], [], []], 'the brokers broke their promise, which no client can make whole'
    for w in worlds:
        w.check(2 * ROWS)

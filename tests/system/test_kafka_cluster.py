# SPDX-License-Identifier: Apache-2.0
"""`semel relay` and `semel consume` on three brokers (everything kept three times, two must have it), of
which one is killed amid the work and comes back, another is stopped, and then those that are left are
killed at once: every committed event is in the log, in the order of its key; exactly-once shows none
twice; each has its effect once.  And a topic that wants more replicas in sync than there are holds its own keys
only."""
import concurrent.futures
import signal

import pytest

from support import wait_until
from support.kafka_log import lost_markers
from support.relay import Outbox, Relay, drained, in_order

pytestmark = pytest.mark.kafka

ROWS, KEYS, PARTITIONS, BATCH, LANES = 8000, 100, 6, 100, 2
FAULTS = 3
MARKERS = 'cluster.marker'
EFFECT = 'INSERT INTO effect (id, key) VALUES ($3, $1)'


@pytest.fixture(scope='module')
def cluster(start_kafka):
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
        # A transaction whose brokers were all away may not go on with the same producer.
        env = {'SEMEL_MARKER_TOPIC': MARKERS, **({'SEMEL_BATCH_TIMEOUT': '8s'} if mode == 'exactly-once' else {})}
        self.relay = Relay(procs, build, url, cluster.bootstrap, name=f'relay-{mode}', mode=mode,
                           batch_rows=BATCH, lanes=LANES, env=env)
        self.rows = 0
        self.consumer = procs.start(
            [build.semel, 'consume', '--db', url, '--brokers', cluster.bootstrap, '--topic', self.topic,
             '--group', self.topic, '--sql', EFFECT], name=f'consume-{mode}')

    def fill(self):
        self.outbox.fill(self.topic, ROWS, KEYS, first=self.rows // KEYS)
        self.rows += ROWS
        wait_until(lambda: self.outbox.count() < ROWS - BATCH, 30, 'some of the rows to be published')

    def is_struck(self):
        left = self.outbox.count()
        print(f'{self.mode}: the fault left {left} rows')
        assert left > 0, f'{self.mode}: the fault struck no unfinished work'

    def effects(self):
        return self.outbox.one('SELECT count(*) FROM effect')

    def check(self):
        isolation = 'read_committed' if self.mode == 'exactly-once' else 'read_uncommitted'
        distinct, duplicates = in_order(self.cluster.consume_all(self.topic, isolation))
        print(f'{self.mode}: {distinct} events, {duplicates} duplicates')
        assert distinct == self.rows
        assert duplicates <= (0 if self.mode == 'exactly-once' else FAULTS * LANES * BATCH)  # C12
        assert self.outbox.one('SELECT count(DISTINCT id) FROM effect') == self.effects() == self.rows
        assert self.outbox.one('SELECT count(*) FROM semel.dead_letter') == 0


def coordinator(cluster):
    """Of the transactions."""
    return cluster.nodes[cluster.leaders('__transaction_state')[0][0]]


def in_sync(cluster, topics):
    return all(len(r) == cluster.replicas for t in topics for r in cluster.leaders(t)[1].values())


def strike(worlds, nodes, sig):
    """Amid the work of all of them: at least a third is left."""
    while any(w.outbox.count() < ROWS // 3 for w in worlds):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(World.fill, worlds))
    for n in nodes:
        n.popen.send_signal(sig)
    for w in worlds:
        w.is_struck()
    for n in nodes:
        n.popen.wait(30)


def all_done(worlds):
    for w in worlds:
        w.outbox.wait_empty(90)
        wait_until(lambda w=w: w.effects() == w.rows, 60, 'all effects')


def test_brokers_are_killed_and_stopped_amid_the_work(procs, build, semel, pg, cluster):
    worlds = [World(procs, build, semel, pg, cluster, mode) for mode in ('exactly-once', 'owned')]
    for w in worlds:
        w.consumer.wait_log('assigned', 30)
    topics = [*(w.topic for w in worlds), '__transaction_state', '__consumer_offsets']
    # it leads partitions of both topics, and coordinates the transactions; then the one that took over
    killed = coordinator(cluster)
    assert all(killed.number in cluster.leaders(t)[0].values() for t in topics[:2])
    strike(worlds, [killed], signal.SIGKILL)
    all_done(worlds)  # two are enough
    killed.start()
    wait_until(lambda: in_sync(cluster, topics), 30, 'three replicas in sync', interval=0.2)
    stopped = coordinator(cluster)
    assert stopped is not killed
    strike(worlds, [stopped], signal.SIGTERM)
    all_done(worlds)
    strike(worlds, [n for n in cluster.nodes.values() if n is not stopped], signal.SIGKILL)
    cluster.start_again()
    all_done(worlds)
    for w in worlds:
        drained(w.relay, w.consumer)
    lost = [lost_markers(n.data, (worlds[0].topic, MARKERS)) for n in cluster.nodes.values()]
    assert lost == [[], [], []], 'the brokers broke their promise, which no client can make whole'
    for w in worlds:
        w.check()


MODES = ['owned', 'single', 'two-phase', 'exactly-once']


class Stuck:
    """A relay with rows of a topic that wants all three replicas in sync, and of one that wants two."""

    def __init__(self, procs, build, semel, pg, cluster, mode):
        url = pg.url(pg.new_database())
        assert semel('migrate', '--db', url).returncode == 0
        self.mode, self.outbox = mode, Outbox(url)
        self.stuck, self.good = cluster.new_topic(1, {'min.insync.replicas': '3'}), cluster.new_topic(2)
        self.outbox.add(self.stuck, [(f's{i % 20}', b'%d' % i) for i in range(200)] + [(None, b'free')])
        self.outbox.add(self.good, [(f'g{i % 20}', b'%d' % i) for i in range(200)])
        self.start = lambda: Relay(procs, build, url, cluster.bootstrap, name=f'relay-{mode}', mode=mode,
                                   attempts_max=2, retry_min='20ms', retry_max='100ms',
                                   env={'SEMEL_MARKER_TOPIC': MARKERS})

    def others_flow(self):
        wait_until(lambda: self.outbox.count() == 201, 25, f'{self.mode}: the other keys flow')
        wait_until(lambda: self.relay.rows('retried') >= 3, 25, 'without a key it is tried again, and not given up')
        # (in mode two-phase they are PUBLISHING for moments)
        assert self.outbox.sql("SELECT DISTINCT replace(status, 'PUBLISHING', 'PENDING'), key IS NULL, attempts > 0 "
                               'FROM semel.outbox ORDER BY 2') == [
            ('PENDING', False, False), ('PENDING', True, True)]

    def all_went(self, cluster):
        self.outbox.wait_empty()
        assert self.relay.metric('semel_relay_producer_resets_total') == 0
        drained(self.relay)
        values = cluster.values(self.stuck)
        assert len(values) == 201
        values.remove(b'free')
        for k in range(20):
            assert [int(v) for v in values if int(v) % 20 == k] == list(range(k, 200, 20))


def test_c4_a_partition_that_cannot_be_written_holds_its_own_keys_only(procs, build, semel, pg, cluster):
    """One of three brokers is stopped; a batch may wait 30 s for its reports."""
    worlds = [Stuck(procs, build, semel, pg, cluster, mode) for mode in MODES]
    cluster.nodes[3].stop()
    wait_until(lambda: all(3 not in r for w in worlds for t in (w.stuck, w.good)
                           for r in cluster.leaders(t)[1].values()), 30, 'two replicas in sync', interval=0.2)
    for w in worlds:
        w.relay = w.start()
    for w in worlds:
        w.others_flow()
    for w in worlds:
        cluster.set_topic(w.stuck, {'min.insync.replicas': '2'})
    for w in worlds:
        w.all_went(cluster)

# SPDX-License-Identifier: Apache-2.0
"""SIGTERM at random moments over all daemons under load, on a real PostgreSQL and a real Kafka.  One
world runs: clients, gateway, shop, a relay in each mode, `semel consume` with a statement and with
an endpoint, billing, payd.  Some of them at a time are told to end, and are started again, every
other time as PID 1.

    SEMEL_MOMENTS   how many (60)
    SEMEL_SEED      the seed to repeat

First they are told once: each exits 0 before its deadline, has nothing half done, and nothing is lost
or comes twice, not even what may come twice after a crash (but for a relay that says that the broker
left it without an answer: what it had under way is sent again, unless exactly once; and for a consumer
with an endpoint that says that it lost its partitions).  Then they are told twice, which ends them at once, or are killed during the drain: what a crash may cost is lost work that
comes again."""
import collections
import concurrent.futures
import http.server
import os
import random
import re
import signal
import threading
import time

import confluent_kafka
import pytest

from support.binaries import FULL
from support.kafka import consume_all, quiet
from support.process import PID_1, pid_1_below
from support.relay import Outbox, Relay
from support.storm import PARTITIONS, Clients, Part, Story
from support.wait import wait_until

pytestmark = pytest.mark.kafka

MOMENTS = int(os.environ.get('SEMEL_MOMENTS', '60' if FULL else '20'))
SEED = int(os.environ.get('SEMEL_SEED', random.SystemRandom().randrange(1 << 32)))
DEADLINE_S = 25
EXAMPLES = ('shop', 'payd', 'billing')
AT_ONCE = 3  # told at the same moment
# A relay says it when the broker has not answered in time, a consumer when it was not heard in time.
SENT_AGAIN = re.compile('a new producer: |partitions? lost')
MODES = ['single', 'two-phase', 'exactly-once']


class Starter:
    """Starts processes as Processes does, as PID 1 where the calling thread says so."""

    def __init__(self, procs):
        self.procs, self.run, self.here = procs, procs.run, threading.local()

    def start(self, argv, **kw):
        first = getattr(self.here, 'first', False)
        p = self.procs.start([*PID_1, *argv] if first else argv, **kw)
        p.first = first
        return p


def target(process):
    return pid_1_below(process.pid) if process.first else process.pid


def pending(pid):
    """Has SIGTERM not been delivered yet?"""
    bit = 1 << (signal.SIGTERM - 1)
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return any(int(line.split()[1], 16) & bit for line in f if line.startswith(('SigPnd', 'ShdPnd')))


class Endpoint(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        seen = self.seen = collections.Counter()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers['Content-Length']))
                seen[self.headers['Idempotency-Key']] += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass
        super().__init__(('127.0.0.1', 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Lane:
    """A relay in a mode, an outbox that is always written to, and its topic."""

    def __init__(self, world, mode):
        self.world, self.mode, self.db = world, mode, world.pg.new_database()
        s = world.story
        assert s.procs.run([s.build.semel, 'migrate', '--db', world.pg.url(self.db)]).returncode == 0
        self.topic = world.kafka.new_topic(3)
        self.written, self.ending = 0, threading.Event()
        self.part = Part(f'relay {mode}', self.start)
        self.thread = threading.Thread(target=self.write)
        self.thread.start()

    def start(self):
        s = self.world.story
        return Relay(s.procs, s.build, self.world.pg.url(self.db), self.world.kafka.bootstrap,
                     mode=self.mode, batch_rows=20, stuck_after='2s', retry_min='20ms', retry_max='200ms').p

    def write(self):
        outbox = Outbox(self.world.pg.url(self.db))
        while not self.ending.wait(0.05):
            outbox.add(self.topic, [(f'k{i}', b'%d' % (self.written + i)) for i in range(5)])
            self.written += 5
        outbox.close()

    def waits(self):
        return self.world.pg.value(self.db, 'SELECT count(*) FROM semel.outbox')

    def stop(self):
        self.ending.set()
        self.thread.join()

    def check(self):
        """Everything is in the topic; returns how often something is there again."""
        isolation = 'read_committed' if self.mode == 'exactly-once' else 'read_uncommitted'
        values = [int(m[3]) for m in consume_all(self.world.kafka.bootstrap, self.topic, isolation, 60)]
        assert set(values) == set(range(self.written)), f'{self.mode}: lost'
        return len(values) - self.written


class World:
    def __init__(self, procs, build, pg, kafka, tmp, chance):
        self.pg, self.kafka, self.chance = pg, kafka, chance
        self.starter = Starter(procs)
        self.story = s = Story(self.starter, build, pg, kafka, tmp, shops=1, relays=1, billings=1,
                               seed=chance.randrange(1 << 31))
        self.lanes = [Lane(self, mode) for mode in MODES]
        self.endpoint = Endpoint()
        self.consumers = {name: pg.new_database() for name in ('by-sql', 'by-post')}
        for db in self.consumers.values():
            assert s.procs.run([build.semel, 'migrate', '--db', pg.url(db)]).returncode == 0
        pg.psql(self.consumers['by-sql'], 'CREATE TABLE effect (event_id text)')
        handlers = {'by-sql': ('--sql', 'INSERT INTO effect VALUES ($3)'),
                    'by-post': ('--post', f'http://127.0.0.1:{self.endpoint.server_port}/')}
        self.consume = [Part(name, lambda n=name: self.start_consume(n, handlers[n])) for name in handlers]
        self.parts = [*s.everybody(), *self.consume, *(lane.part for lane in self.lanes)]
        self.clients = Clients(s.places, 6, chance.randrange(1 << 32))
        self.pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self.count, self.longest = collections.Counter(), 0.0
        self.cut = collections.Counter()  # second signals and kills that found a daemon still there
        self.unanswered = set()  # those that say SENT_AGAIN
        self.under_way, self.begun = 0, time.monotonic()

    def start_consume(self, group, handler):
        p = self.starter.start([self.story.build.semel, 'consume', '--db', self.pg.url(self.consumers[group]),
                                '--brokers', self.kafka.bootstrap, '--topic', 'orders', '--group', group,
                                '--batch-rows', '10', '--kafka', 'session.timeout.ms=2000', '--kafka',
                                'heartbeat.interval.ms=200', *handler], name=group)
        p.wait_log('consuming', 20)  # SIGTERM has its handler
        return p

    # -- moments --------------------------------------------------------------------------------
    def moments(self, count, how):
        """`count` daemons, evenly over all, AT_ONCE at a time."""
        todo = []
        while len(todo) < count:
            todo += self.chance.sample(self.parts, len(self.parts))
        todo = todo[:count]
        while todo:
            now = list(dict.fromkeys(todo[:AT_ONCE]))  # (where two rounds meet one may be there twice)
            for part in now:
                todo.remove(part)
            self.load()
            codes = list(self.pool.map(how, now, [self.chance.random() * 0.05 for _ in now]))
            self.cut[how.__name__] += sum(code != 0 for code in codes)
            self.count.update(p.name for p in now)
            print(f'{time.monotonic() - self.begun:5.1f} s, {len(self.clients.confirmed)} confirmed: {[p.name for p in now]}')

    def load(self):
        """Some more orders are confirmed, and some are under way."""
        until = len(self.clients.confirmed) + self.chance.randrange(1, 5)

        def look():
            assert not self.clients.errors, self.clients.errors
            if self.clients.open() < 8:
                self.clients.release(10)
            return len(self.clients.confirmed) >= until
        wait_until(look, timeout=60, what='load')
        self.under_way += self.clients.open() > 0

    def again(self, part):
        self.listen(part)
        self.starter.here.first = not part.process.first
        try:
            part.start()
            if part.name == 'billing':  # it hears signals from here on
                part.process.wait_log('waiting for events', 20)
        finally:
            self.starter.here.first = False

    def listen(self, part):
        if SENT_AGAIN.search(part.process.logs()):
            self.unanswered.add(part.name)

    def told_once(self, part, pause_s):
        threading.Event().wait(pause_s)  # any moment is as good
        pid, begun = target(part.process), time.monotonic()
        os.kill(pid, signal.SIGTERM)
        code = part.process.wait(DEADLINE_S + 10)
        took = time.monotonic() - begun
        assert code == 0 and took < DEADLINE_S, f'{part.name}: {code} after {took:.1f} s\n{part.process.logs()}'
        self.longest = max(self.longest, took)
        self.nothing_half_done(part)
        self.again(part)
        return code

    def nothing_half_done(self, part):
        if part.user:
            assert self.story.in_transaction(part.user) == 0, part.name
        if part.name == 'gateway':
            assert self.story.claims() == 0
        group = {'billing': ('billing', self.story.billing_db)}.get(part.name) or (
            (part.name, self.consumers[part.name]) if part.name in self.consumers else None)
        if group:  # each record has its offset told
            told = self.kafka.committed(group[0], 'orders', PARTITIONS)
            records = self.pg.value(group[1], 'SELECT count(*) FROM semel.processed_event')
            assert sum(max(o, 0) for o in told.values()) >= records, f'{part.name}: {told}, {records}'

    def told_twice(self, part, pause_s):
        threading.Event().wait(pause_s)
        pid = target(part.process)
        os.kill(pid, signal.SIGTERM)
        try:
            wait_until(lambda: not pending(pid), timeout=5)
            begun = time.monotonic()
            os.kill(pid, signal.SIGTERM)
        except (ProcessLookupError, FileNotFoundError):
            begun = time.monotonic()  # it had nothing to do
        code = part.process.wait(10)
        # The examples give the signals back by semel_shutdown_free(): the second one may strike after it.
        ends = (0, 128 + signal.SIGTERM, *([-signal.SIGTERM] if part.name in EXAMPLES else []))
        assert code in ends, f'{part.name}: {code}\n{part.process.logs()}'
        assert time.monotonic() - begun < 5, part.name
        self.again(part)
        return code

    def killed_in_the_drain(self, part, pause_s):
        pid = target(part.process)
        os.kill(pid, signal.SIGTERM)
        threading.Event().wait(pause_s)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        killed = 1 if part.process.first else -signal.SIGKILL  # unshare says 1
        code = part.process.wait(10)
        assert code in (0, killed), part.name
        self.again(part)
        return code

    # -- the end -----------------------------------------------------------------------------------
    def settle(self):
        wait_until(lambda: self.clients.errors or self.clients.open() == 0, timeout=120, what='all answers')
        assert not self.clients.errors, self.clients.errors
        n = len(self.clients.confirmed)
        wait_until(lambda: self.story.outbox() == 0, timeout=60, what='the outbox to be empty')
        for db in (self.story.billing_db, *self.consumers.values()):
            wait_until(lambda d=db: self.pg.value(d, 'SELECT count(*) FROM semel.processed_event') == n,
                       timeout=120, what=f'{db} to apply {n} events')

    def stop(self):
        self.clients.join()
        for lane in self.lanes:
            lane.stop()

    def check(self):
        """Nothing is lost; returns what came twice where it may after a crash."""
        confirmed = {o: total for o, (_, total, _) in self.clients.confirmed.items()}
        for lane in self.lanes:
            wait_until(lambda a=lane: a.waits() == 0, timeout=60, what=f'{lane.mode}: to be empty')
        effects = [e for e, in self.pg.sql(self.consumers['by-sql'], 'SELECT event_id FROM effect')]
        assert len(effects) == len(set(effects)) == len(confirmed)
        assert len(self.endpoint.seen) == len(confirmed)
        for db in self.consumers.values():
            assert self.pg.value(db, 'SELECT count(*) FROM semel.dead_letter') == 0
        events = consume_all(self.kafka.bootstrap, 'orders', timeout=60)
        again = {f'relay {lane.mode}': lane.check() for lane in self.lanes}
        again['relay'] = len(events) - len(confirmed)
        again['by-post'] = sum(self.endpoint.seen.values()) - len(confirmed)
        return again


def test_told_to_end_at_any_moment(procs, build, pg_own, kafka_own, tmp):
    print(f'seed {SEED}: SEMEL_SEED={SEED}')
    # A broker that has just started gives nobody a producer id until its coordinator is loaded.
    confluent_kafka.Producer(quiet(kafka_own.bootstrap, transactional_id='first')).init_transactions(60)
    world = World(procs, build, pg_own, kafka_own, tmp, random.Random(SEED))
    hard = max(MOMENTS // 10, 2)
    try:
        world.moments(MOMENTS - 2 * hard, world.told_once)
        world.settle()
        for lane in world.lanes:
            lane.stop()
        again = world.check()
        for part in world.parts:
            world.listen(part)
        excused = world.unanswered - {'relay exactly-once'}
        twice = {k: n for k, n in again.items() if n and k not in excused}
        assert not twice, f'after a plain end came again: {twice}'
        print(f'longest end {world.longest:.1f} s; {len(world.clients.confirmed)} orders; without an answer of '
              f'the broker: {world.unanswered or "none"}, came again {again}')
        world.moments(hard, world.told_twice)
        world.moments(hard, world.killed_in_the_drain)
        world.settle()
        again = world.check()
        assert again['relay exactly-once'] == 0
    finally:
        world.stop()
    for part in world.parts:
        os.kill(target(part.process), signal.SIGTERM)
        assert part.process.wait(DEADLINE_S) == 0, part.process.logs()
    world.story.check({o: total for o, (_, total, _) in world.clients.confirmed.items()})
    print(f'{dict(world.count)}, {world.under_way} times with orders under way; came again: {again}; '
          f'cut off {dict(world.cut)}')
    assert sum(world.count.values()) >= MOMENTS
    assert len(world.count) == len(world.parts) or MOMENTS < len(world.parts)
    assert world.under_way > 0
    # A daemon with little to do is gone before the second signal: not every one may be.
    assert not FULL or (world.cut['told_twice'] and world.cut['killed_in_the_drain']), world.cut

# SPDX-License-Identifier: Apache-2.0
"""A random soak: two gateways behind one PostgreSQL, killed, stopped, restarted; the server crashes;
the upstream misbehaves; a fleet of clients retries with its keys; and a checker reads what they saw.

    SEMEL_SOAK_SECONDS   how long (60, with a sanitizer 20; `make soak`: 600)
    SEMEL_SOAK_SEED      the seed to repeat

What must hold under hold: a key's effect happens at most once; whoever was told of success got the same
bytes, and the effect is there; another request under a finished key is never answered with its
reply.  A key that ends as UNKNOWN stays open: it may be resolved late, never run again."""
import collections
import os
import random
import signal
import threading
import time

from support import upstream as up
from support.binaries import FULL
from support.gateway import Gateway
from support.upstream import Upstream
from support.wait import wait_until

SECONDS = float(os.environ.get('SEMEL_SOAK_SECONDS', '60' if FULL else '20'))
CLIENTS = 10
TRY_SECONDS = 15  # how long a client cares for one key
# A drain waits for the upstream (0.7 s) and for the store, which is there again: a call of it takes 6 s at
# most, a claim one, a completion two.  Longer is a fault, well before the deadline (25 s) hides it.
DRAIN_SECONDS = 20
OPTIONS = ('--upstream-timeout', '700ms', '--lease', '1s', '--log', 'none')

Seen = collections.namedtuple('Seen', 'at key changed status problem replayed body warning')


def works_for_a_while(rng):
    pause = rng.uniform(0, 0.05)

    def behave(u, conn, request):
        threading.Event().wait(pause)
        conn.sendall(u.execute(request))
        return True
    return behave


def answers_half(u, conn, request):
    conn.sendall(u.execute(request)[:-4])
    return False


class Chaos(list):
    """What the upstream does with each request; the same for a seed, as far as threads allow."""

    FAULTS = [up.closes(True), up.closes(False), up.resets_after(1, True), up.resets_after(0, True),
              answers_half, up.answers(b'HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n'),
              up.answers(b'HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n', True)]

    def __init__(self, rng):
        super().__init__([None])
        self.rng = rng
        self.calm = False
        self.faults = 0

    def pop(self, *_):
        if self.calm or self.rng.random() > 0.15:
            return works_for_a_while(self.rng)
        self.faults += 1
        if self.rng.random() < 0.2:
            return self.too_late
        return self.rng.choice(self.FAULTS)

    @staticmethod
    def too_late(u, conn, request):
        reply = u.execute(request)
        threading.Event().wait(1.0)
        conn.sendall(reply)
        return False


class Fleet:
    def __init__(self, gateways, seed):
        self.gateways = gateways
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.seen = []
        self.open = [0, 0]  # requests under way, by gateway
        self.broken = 0     # connections that a fault took away
        self.threads = [threading.Thread(target=self.run, args=(c, random.Random(f'{seed}-{c}')),
                                         daemon=True) for c in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def run(self, client, rng):
        i = 0
        while not self.stop.is_set():
            # Two clients share each key, so that duplicates race.
            key = f'key-{client // 2}-{i}'
            i += 1
            done = self.one(key, rng)
            if done and rng.random() < 0.1:
                self.send(key, rng.randrange(2), changed=True)

    def one(self, key, rng):
        """Until the key is answered for good, or an operator would be asked."""
        end = time.monotonic() + TRY_SECONDS
        while time.monotonic() < end and not self.stop.is_set():
            seen = self.send(key, rng.randrange(2))
            if seen and seen.status == 201:
                return True
            if seen and seen.problem == 'outcome-unknown':
                return False
            threading.Event().wait(rng.uniform(0.01, 0.1))
        return False

    def send(self, key, which, changed=False):
        with self.lock:
            gateway = self.gateways[which]
            self.open[which] += 1
        try:
            body = f'what={key}&changed={changed}'.encode()
            r = gateway.post(key, body=body, timeout=10)
        except Exception:  # noqa: BLE001: the connection broke; nobody knows
            with self.lock:
                self.broken += 1
            return None
        finally:
            with self.lock:
                self.open[which] -= 1
        told = r.header('Content-Type') == 'application/problem+json'
        seen = Seen(time.monotonic(), key, changed, r.status, r.problem if told else None, r.replayed,
                    r.body, r.header('Semel-Warning'))
        with self.lock:
            self.seen.append(seen)
        return seen

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive()


class World:
    def __init__(self, procs, build, server, url, upstream, rng):
        self.procs, self.build, self.server, self.url = procs, build, server, url
        self.upstream, self.rng = upstream, rng
        self.gateways = [self.start(), self.start()]
        self.struck = collections.Counter()
        self.drains = []  # seconds of each SIGTERM's drain
        self.fleet = None

    def start(self):
        return Gateway(self.procs, self.build.semel, self.upstream.url, self.url, *OPTIONS)

    def unfinished(self, which):
        """A fault is only one when it strikes work: a client waits for this gateway now."""
        wait_until(lambda: self.fleet.open[which] > 0, timeout=30, what='work to strike')

    def replace(self, which):
        new = self.start()
        with self.fleet.lock:
            self.gateways[which] = new

    def kill(self, which):
        self.unfinished(which)
        broken = self.fleet.broken
        self.gateways[which].process.kill()
        wait_until(lambda: self.fleet.broken > broken, what='a client that lost its connection')
        self.replace(which)

    def pause(self, which):
        """Beyond the lease, or not."""
        process = self.gateways[which].process
        self.unfinished(which)
        process.stop()
        wait_until(lambda: self.fleet.open[which] > 0, what='a client that waits for it')
        threading.Event().wait(self.rng.choice([0.2, 1.3]))
        process.cont()

    def restart(self, which):
        self.unfinished(which)
        gateway = self.gateways[which]
        begun = time.monotonic()
        gateway.process.send(signal.SIGTERM)
        try:
            gateway.process.wait(DRAIN_SECONDS)
        except AssertionError as slow:  # with its own numbers of what it waits for
            raise AssertionError(f'{slow}\n{gateway.get_admin("/metrics")[1].decode()}') from None
        assert gateway.process.returncode == 0, gateway.process.logs()
        self.drains.append(time.monotonic() - begun)
        self.replace(which)

    def crash_the_server(self, _):
        self.unfinished(self.rng.randrange(2))
        self.server.stop('immediate')
        down = time.monotonic()
        wait_until(lambda: any(s.status == 503 and s.at > down for s in self.fleet.seen[-200:]),
                   timeout=20, what='a request that the crash struck')
        self.server.start()

    def soak(self, seconds):
        faults = [self.kill, self.pause, self.restart, self.crash_the_server]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.rng.shuffle(faults)
            for fault in faults:
                done = len(self.fleet.seen)
                fault(self.rng.randrange(2))
                self.struck[fault.__name__] += 1
                wait_until(lambda: len(self.fleet.seen) > done + 20, timeout=60,
                           what='the fleet to go on')


def violations(seen, effects):
    out = []
    told, finished = {}, {}
    for s in sorted(seen):
        if s.status == 201 and s.changed:
            out.append(f'{s.key}: another request was answered {s}')
        elif s.status == 201:
            if told.setdefault(s.key, s.body) != s.body:
                out.append(f'{s.key}: two replies, {told[s.key]} and {s.body}')
            if effects[s.key] != 1:
                out.append(f'{s.key}: told of success, {effects[s.key]} effects')
            finished.setdefault(s.key, s.at)
        elif s.problem == 'key-reused' and not s.changed:
            out.append(f'{s.key}: the same request was taken for another one')
        elif s.changed and s.status not in (422, 502, 503):
            out.append(f'{s.key}: another request under a finished key heard {s.status} {s.problem}')
    out += [f'{key}: {n} effects' for key, n in effects.items() if n > 1]
    return out


def test_random_soak(procs, build, pg_own, semel):
    seed = os.environ.get('SEMEL_SOAK_SEED') or str(random.SystemRandom().randrange(10**9))
    print(f'SEMEL_SOAK_SEED={seed}')
    rng = random.Random(seed)
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0
    upstream = Upstream()
    upstream.plan = chaos = Chaos(random.Random(f'{seed}-upstream'))
    world = World(procs, build, pg_own, url, upstream, rng)
    world.fleet = Fleet(world.gateways, seed)
    try:
        world.soak(SECONDS)
    finally:
        world.fleet.end()
    fleet = world.fleet
    chaos.calm = True
    bad = violations(fleet.seen, upstream.effects)
    assert not bad, f'SEMEL_SOAK_SEED={seed}\n' + '\n'.join(bad[:20])

    # Afterwards every key of a sample says what it said.
    # A reply with a warning could not be kept: its key may be UNKNOWN, and the client was told so.
    told = {s.key: s.body for s in fleet.seen if s.status == 201 and not s.warning}
    unknown = {s.key for s in fleet.seen if s.problem == 'outcome-unknown'} - set(told)
    warned = sum(bool(s.warning) for s in fleet.seen)
    effects = dict(upstream.effects)
    for key in rng.sample(sorted(told), min(50, len(told))):
        again = world.gateways[0].post(key, body=f'what={key}&changed=False'.encode())
        assert again.replayed and again.body == told[key], key
    for key in rng.sample(sorted(unknown), min(50, len(unknown))):
        again = world.gateways[1].post(key, body=f'what={key}&changed=False'.encode())
        if again.status == 201 and not again.replayed:
            # A holder that woke before its first byte said that it did not run: the key became free.
            assert effects.pop(key, 0) == 0 and upstream.effects.pop(key) == 1, key
        else:
            assert again.replayed or again.problem == 'outcome-unknown', (key, again)
    assert upstream.effects == effects, 'something ran again'

    print(f'{len(fleet.seen)} answers, {len(told)} keys done, {len(unknown)} unknown, '
          f'{warned} warnings, {fleet.broken} connections broken, {chaos.faults} faults upstream, {dict(world.struck)}, '
          f'the longest drain {max(world.drains, default=0):.1f} s')
    assert len(world.struck) == 4 and chaos.faults > 0 and len(told) > 50
    upstream.close()

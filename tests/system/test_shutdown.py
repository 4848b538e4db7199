# SPDX-License-Identifier: Apache-2.0
"""The one way to end, over every daemon.  DAEMONS is the list: a class for each says how it is
started, how it is given work, and what is left in its database."""
import concurrent.futures
import http.client
import os
import re
import signal
import socket
import threading
import time

import confluent_kafka
import pytest

from support import upstream as up
from support.kafka import quiet
from support.process import PID_1, pid_1_below
from support.shop import Database
from support.upstream import Upstream
from support.wait import wait_until


class World:
    """What a daemon needs around it."""

    def __init__(self, procs, build, tmp, url):
        self.procs, self.build, self.tmp, self.url = procs, build, tmp, url
        self.upstream = Upstream()
        self.close = self.upstream.close
        self._broker = None

    @property
    def broker(self):
        """A dev-broker of this world's own."""
        if self._broker is None:
            self._broker = self.procs.start([self.build.semel, 'dev-broker', '--topic', 'orders=2'],
                                            name='dev-broker')
            self.brokers = self._broker.wait_log(r'(?m)^(127\.0\.0\.1:\d+)$').group(1)
        return self._broker


class Daemon:
    """One daemon in one world; `start` may be called again after an end."""
    SHORT_MS, ENDLESS_MS = 1000, 600000

    def __init__(self, world):
        self.world, self.call = world, None

    def run(self, argv, prefix, env):
        self.process = self.world.procs.start([*prefix, *argv], env=env)
        self.wait_started()

    def get(self, port, path):
        conn = http.client.HTTPConnection('127.0.0.1', port, timeout=10)
        try:
            conn.request('GET', path)
            return conn.getresponse().status
        finally:
            conn.close()

    def drains(self):
        """Is it seen from outside that no new work is taken?"""
        return refuses(self.port)

    def background(self, fn):
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.call = pool.submit(fn)
        pool.shutdown(wait=False)


class Gateway(Daemon):
    def start(self, drain_delay_ms=0, shutdown_ms=25000, prefix=(), env=None, endless=False):
        w = self.world
        self.endless = endless
        self.run([w.build.semel, 'gateway', '--listen', '127.0.0.1:0', '--upstream', w.upstream.url,
                  '--db', w.url, '--admin', '127.0.0.1:0', '--log', 'none',
                  '--drain-delay', f'{drain_delay_ms}ms', '--shutdown-deadline', f'{shutdown_ms}ms'],
                 prefix, env)

    def wait_started(self):
        self.admin = int(self.process.wait_log(r'admin on port (\d+)').group(1))
        self.port = int(re.search(r'listening on 127\.0\.0\.1:(\d+)', self.process.err()).group(1))

    def ready(self):
        return self.get(self.admin, '/readyz') == 200

    def post(self, key):
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        try:
            conn.request('POST', '/orders', body=b'x', headers={'Host': 'h', 'Idempotency-Key': key})
            return conn.getresponse().status
        finally:
            conn.close()

    def begin_work(self):
        self.world.upstream.plan.append(up.hangs(True))
        self.background(lambda: self.post('k'))
        wait_until(lambda: self.world.upstream.effects['k'] == 1)

    def end_work(self):
        self.world.upstream.release.set()

    def effects(self):
        return self.world.upstream.effects['k']

    def left(self):
        return (Database(self.world.url).command('k') or (None,))[0], self.effects()


class Shop(Daemon):
    PATH = '/api/v1/sellers'

    def start(self, drain_delay_ms=0, shutdown_ms=25000, prefix=(), env=None, endless=False):
        w = self.world
        self.run([w.build.shop, '--listen', '127.0.0.1:0', '--store', w.url, '--mode', 'reserve',
                  '--work-ms', self.ENDLESS_MS if endless else self.SHORT_MS,
                  '--drain-delay-ms', drain_delay_ms, '--shutdown-ms', shutdown_ms], prefix, env)

    def wait_started(self):
        self.port = int(self.process.wait_log(r'listening on 127\.0\.0\.1:(\d+)').group(1))

    def ready(self):
        return self.get(self.port, '/readyz') == 200

    def post(self, key):
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        try:
            conn.request('POST', self.PATH, body=b'{"name": "Ada"}',
                         headers={'Content-Type': 'application/json', 'Idempotency-Key': key})
            return conn.getresponse().status
        finally:
            conn.close()

    def begin_work(self):
        self.background(lambda: self.post('k'))
        wait_until(lambda: (Database(self.world.url).command('k') or (None,))[0] == 1,
                   what='the claim')

    def end_work(self):
        """It ends by itself after SHORT_MS."""

    def effects(self):
        return Database(self.world.url).sql('SELECT count(*) FROM shop_seller')[0][0]

    def left(self):
        return (Database(self.world.url).command('k') or (None,))[0], self.effects()


class Payd(Daemon):
    def start(self, drain_delay_ms=0, shutdown_ms=25000, prefix=(), env=None, endless=False):
        w = self.world
        self.ledger = w.url[len('sqlite:'):]
        self.run([w.build.path('payd'), '--listen', '127.0.0.1:0', '--ledger', self.ledger,
                  '--work-ms', self.ENDLESS_MS if endless else self.SHORT_MS,
                  '--drain-delay-ms', drain_delay_ms, '--shutdown-ms', shutdown_ms], prefix, env)

    wait_started = Shop.wait_started
    ready = Shop.ready
    end_work = Shop.end_work

    def post(self, key):
        """Its head is answered with 100 before the body goes: then payd is at it."""
        body = b'{"order_id": "o", "customer_id": "c", "amount": 1}'
        with socket.create_connection(('127.0.0.1', self.port), timeout=30) as s:
            s.sendall(b'POST /charges HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n'
                      b'Idempotency-Key: %s\r\nExpect: 100-continue\r\nConnection: close\r\n'
                      b'Content-Length: %d\r\n\r\n' % (key.encode(), len(body)))
            got = s.recv(4096)
            assert got.startswith(b'HTTP/1.1 100'), got
            s.sendall(body)
            self.at_it.set()
            got = got.partition(b'\r\n\r\n')[2]
            while piece := s.recv(4096):
                got += piece
            return int(got.split(b' ')[1])

    def begin_work(self):
        self.at_it.clear()
        self.background(lambda: self.post('k'))
        assert self.at_it.wait(20), 'the request'

    def run(self, *args):
        self.at_it = threading.Event()
        super().run(*args)

    def effects(self):
        return Database(self.world.url).sql('SELECT count(*) FROM ledger')[0][0]

    def left(self):
        return Database(self.world.url).command('k'), self.effects()


class Relay(Daemon):
    """Its work is a batch that the broker, which is stopped, does not answer."""

    def start(self, drain_delay_ms=0, shutdown_ms=25000, prefix=(), env=None, endless=False):
        w = self.world
        assert w.broker.alive()
        self.run([w.build.semel, 'relay', '--db', w.url, '--brokers', w.brokers,
                  '--admin', '127.0.0.1:0', '--drain-delay', f'{drain_delay_ms}ms',
                  '--shutdown-deadline', f'{shutdown_ms}ms'], prefix, env)
        assert self.post('k') == 201  # so that this key's lane knows broker and topic

    def wait_started(self):
        self.port = int(self.process.wait_log(r'admin on port (\d+)').group(1))
        wait_until(self.ready)

    def ready(self):
        return self.get(self.port, '/readyz') == 200

    def drains(self):
        return 'draining' in self.process.err()

    def rows(self, key):
        return Database(self.world.url).sql('SELECT status FROM semel_outbox WHERE key = ?',
                                            args=(key,))

    def append(self, key):
        Database(self.world.url).sql("INSERT INTO semel_outbox (topic, key, payload)"
                                     " VALUES ('orders', ?, x'31')", args=(key,))

    def published(self, key):
        wait_until(lambda: self.rows(key) == [], timeout=20, what=f'{key} to be published')
        return 201

    def post(self, key):
        self.append(key)
        return self.published(key)

    def batches(self):
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=10)
        try:
            conn.request('GET', '/metrics')
            return int(re.search(r'(?m)^semel_relay_batches_total (\d+)$',
                                 conn.getresponse().read().decode()).group(1))
        finally:
            conn.close()

    def begin_work(self):
        before = self.batches()
        self.world.broker.stop()
        self.append('k')
        wait_until(lambda: self.batches() > before, what='the batch')
        self.background(lambda: self.published('k'))

    def end_work(self):
        self.world.broker.cont()

    def effects(self):
        return 1 - len(self.rows('k'))

    def left(self):
        return self.rows('k')


class Consume(Daemon):
    """Its work is an event whose handler, the world's upstream, does not answer."""
    HANDLED_AS = 'orders:k:g'  # join(source, event id, consumer)

    def start(self, drain_delay_ms=0, shutdown_ms=25000, prefix=(), env=None, endless=False):
        w = self.world
        assert w.broker.alive()
        self.run([w.build.semel, 'consume', '--db', w.url, '--brokers', w.brokers, '--topic', 'orders',
                  '--group', 'g', '--post', w.upstream.url + '/charges', '--admin', '127.0.0.1:0',
                  '--drain-delay', f'{drain_delay_ms}ms', '--shutdown-deadline', f'{shutdown_ms}ms'],
                 prefix, env)
        assert self.post('first') == 201  # it has its partitions

    def wait_started(self):
        self.port = int(self.process.wait_log(r'admin listener on port (\d+)').group(1))
        wait_until(self.ready, timeout=30)

    def ready(self):
        return self.get(self.port, '/readyz') == 200

    def drains(self):
        return 'draining' in self.process.err()

    def produce(self, event_id):
        p = confluent_kafka.Producer(quiet(self.world.brokers))
        p.produce('orders', b'{"order_id": "o", "customer_id": "c", "total_kopecks": 1}', event_id,
                  headers=[('event-id', event_id.encode())])
        assert p.flush(10) == 0

    def key(self, event_id):
        return self.HANDLED_AS.replace('k', event_id, 1)

    def applied(self, event_id):
        wait_until(lambda: Database(self.world.url).sql(
            'SELECT count(*) FROM semel_processed_event WHERE event_id = ?', args=(event_id,))[0][0],
            timeout=30, what=f'{event_id} to be recorded')
        return 201

    def post(self, event_id):
        self.produce(event_id)
        return self.applied(event_id)

    def begin_work(self):
        self.world.upstream.plan.append(up.hangs(True))
        self.produce('k')
        wait_until(self.effects, timeout=30, what='the handler')
        self.background(lambda: self.applied('k'))

    def end_work(self):
        self.world.upstream.release.set()

    def effects(self):
        return self.world.upstream.effects[self.key('k')]

    def left(self):
        return Database(self.world.url).sql(
            'SELECT count(*) FROM semel_processed_event WHERE event_id = ?', args=('k',)), self.effects()


class Billing(Consume):
    """A program that has semel_consume() and semel/shutdown.h, and no admin listener."""
    HANDLED_AS = 'k:billing'

    def start(self, drain_delay_ms=0, shutdown_ms=25000, prefix=(), env=None, endless=False):
        w = self.world
        assert w.broker.alive()
        self.run([w.build.path('billing'), '--db', w.url, '--brokers', w.brokers, '--group', 'g',
                  '--pay-url', w.upstream.url + '/charges', '--shutdown-ms', shutdown_ms], prefix, env)
        assert self.post('first') == 201

    def wait_started(self):
        self.process.wait_log('partitions assigned', timeout=30)

    def drains(self):
        """It says nothing; but the signal is no longer pending."""
        pending = re.search(r'(?m)^ShdPnd:\t(\w+)$', open(f'/proc/{self.pid()}/status').read())
        return not int(pending.group(1), 16) & 1 << (signal.SIGTERM - 1)

    def pid(self):
        pid = self.process.pid
        while children := open(f'/proc/{pid}/task/{pid}/children').read().split():
            pid = int(children[0])  # under unshare
        return pid


DAEMONS = [Gateway, Shop, Payd] + [pytest.param(d, marks=pytest.mark.kafka)
                                   for d in (Relay, Consume, Billing)]


NAMES = ['gateway', 'shop', 'payd', 'relay', 'consume', 'billing']


@pytest.fixture(params=DAEMONS, ids=NAMES)
def make(request, procs, build, tmp):
    """make() -> a daemon that is not started yet, in a world of its own."""
    worlds = []

    def go():
        url = f'sqlite:{tmp}/{len(worlds)}.db'
        worlds.append(World(procs, build, tmp, url))
        return request.param(worlds[-1])
    yield go
    for w in worlds:
        w.close()


def test_running_work_ends_and_the_exit_code_is_0(make):
    d = make()
    d.start()
    d.begin_work()
    d.process.send(signal.SIGTERM)
    d.process.stop()  # stopped and woken: it must not lose the signal
    d.process.cont()
    assert d.process.alive()
    d.end_work()
    assert d.process.wait(20) == 0, d.process.logs()
    assert d.call.result(10) == 201 and d.effects() == 1


def test_an_idle_one_exits_0_at_once(make):
    d = make()
    d.start()
    d.process.send(signal.SIGTERM)
    assert d.process.wait(10) == 0, d.process.logs()  # its deadline is 25 s


def test_sigint_is_the_same(make):
    d = make()
    d.start()
    d.process.send(signal.SIGINT)
    assert d.process.wait(10) == 0, d.process.logs()


# billing has no listener: nobody can ask it
@pytest.mark.parametrize('make', DAEMONS[:-1], indirect=True, ids=NAMES[:-1])
def test_readiness_fails_during_the_drain_delay_and_work_is_still_taken(make):
    d = make()
    d.start(drain_delay_ms=200000, shutdown_ms=200000)
    assert d.ready()
    d.process.send(signal.SIGTERM)
    wait_until(lambda: not d.ready())
    assert d.post('late') == 201
    d.process.send(signal.SIGTERM)
    assert d.process.wait(20) == 128 + signal.SIGTERM, d.process.logs()


@pytest.mark.parametrize('make', DAEMONS[:-1], indirect=True, ids=NAMES[:-1])
def test_when_the_drain_delay_is_over_it_ends(make):
    d = make()
    d.start(drain_delay_ms=500)
    begun = time.monotonic()
    d.process.send(signal.SIGTERM)
    assert d.process.wait(20) == 0, d.process.logs()
    assert time.monotonic() - begun >= 0.5


def test_the_deadline_cuts_what_does_not_end(make):
    d = make()
    d.start(shutdown_ms=500, endless=True)
    d.begin_work()
    begun = time.monotonic()
    d.process.send(signal.SIGTERM)
    assert d.process.wait(10) == 75, d.process.logs()
    assert 0.4 < time.monotonic() - begun < 5


def test_a_second_signal_ends_it_at_once(make):
    d = make()
    d.start(endless=True)
    d.begin_work()
    d.process.send(signal.SIGTERM)
    wait_until(d.drains, what='it drains')
    assert d.process.alive()
    begun = time.monotonic()
    d.process.send(signal.SIGTERM)
    assert d.process.wait(5) == 128 + signal.SIGTERM
    # the thread sanitizer itself sleeps for a second at every exit
    assert time.monotonic() - begun < (3 if os.environ.get('SEMEL_BUILD_KIND') == 'tsan' else 1)


def refuses(port):
    try:
        socket.create_connection(('127.0.0.1', port), timeout=5).close()
        return False
    except OSError:
        return True


def test_as_pid_1(make):
    """Where a signal without a handler is not delivered at all."""
    d = make()
    d.start(prefix=PID_1)
    d.begin_work()
    os.kill(pid_1_below(d.process.pid), signal.SIGTERM)
    d.end_work()
    assert d.process.wait(20) == 0, d.process.logs()
    assert d.call.result(10) == 201
    d = make()
    d.start(prefix=PID_1, endless=True)
    d.begin_work()
    pid = pid_1_below(d.process.pid)
    os.kill(pid, signal.SIGTERM)
    wait_until(d.drains, what='it drains')
    os.kill(pid, signal.SIGTERM)
    assert d.process.wait(5) == 128 + signal.SIGTERM


def test_sigkill_during_the_drain_is_a_crash_and_no_more(make):
    left = []
    for drains in (False, True):
        d = make()
        d.start(endless=True)
        d.begin_work()
        if drains:
            d.process.send(signal.SIGTERM)
            wait_until(d.drains, what='it drains')
        assert d.process.kill() == -signal.SIGKILL
        left.append(d.left())
    assert left[0] == left[1]


def test_a_service_manager_is_told(make, tmp):
    d = make()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp / 'notify'))
        manager.settimeout(10)
        d.start(env={'NOTIFY_SOCKET': tmp / 'notify', 'WATCHDOG_USEC': '200000'})
        heard = [manager.recv(100) for _ in range(4)]
        assert b'READY=1' in heard and heard.count(b'WATCHDOG=1') >= 2, heard
        d.process.send(signal.SIGTERM)
        wait_until(lambda: manager.recv(100) == b'STOPPING=1')
        assert d.process.wait(10) == 0

# SPDX-License-Identifier: Apache-2.0
"""How a gateway ends: drained, cut by its deadline, told twice, as PID 1, and while it is needed."""
import contextlib
import http.client
import os
import signal
import socket
import struct
import threading
import time

import pytest

from support import upstream as up
from support.gateway import Gateway
from support.process import PID_1, pid_1_below
from support.sqlite import locked, refused
from support.upstream import Forever
from support.wait import wait_until


@pytest.fixture
def start(procs, build, upstream):
    def go(url, *options, **kw):
        return Gateway(procs, build.semel, upstream.url, url, *options, **kw)
    return go


def post(port, key, body=b'x=1', timeout=30):
    """(status, replayed, body), on a connection of its own."""
    conn = http.client.HTTPConnection('127.0.0.1', port, timeout=timeout)
    try:
        conn.request('POST', '/orders', body=body, headers={'Host': 'shop.test', 'Idempotency-Key': key})
        r = conn.getresponse()
        return r.status, r.getheader('Idempotent-Replayed') == 'true', r.read()
    finally:
        conn.close()


def test_running_work_is_finished_and_the_exit_code_is_0(start, store_url, upstream):
    gateway = start(store_url)
    upstream.plan.append(up.hangs(True))
    call = gateway.background('k')
    idle = socket.create_connection(('127.0.0.1', gateway.port))
    wait_until(lambda: upstream.effects['k'] == 1)
    gateway.process.send(signal.SIGTERM)
    wait_until(lambda: gateway.get_admin('/readyz')[0] == 503)
    idle.settimeout(10)
    assert idle.recv(1) == b'', 'an idle connection is kept'
    with pytest.raises(OSError):
        wait_until(lambda: not socket.create_connection(('127.0.0.1', gateway.port)), timeout=0.3)
    upstream.release.set()
    reply = call.result(20)
    assert reply.status == 201 and reply.header('Connection') == 'close'
    assert gateway.process.wait(20) == 0
    again = start(store_url).post('k')
    assert again.replayed and again.body == reply.body and upstream.effects['k'] == 1


def test_a_reply_that_its_client_still_takes_is_not_cut(start, sqlite_url, upstream):
    gateway = start(sqlite_url)
    body = b's' * 1000000
    upstream.plan.append(up.answers(b'HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s'
                                    % (len(body), body), executes=True))
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', gateway.port))
        s.sendall(b'POST /o HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n')
        wait_until(lambda: gateway.outcome('ran') == 1)
        gateway.process.send(signal.SIGTERM)
        wait_until(lambda: gateway.get_admin('/readyz')[0] == 503)
        s.settimeout(20)
        out = b''
        while piece := s.recv(65536):
            out += piece
    assert out.endswith(body) and len(out) > len(body)
    assert gateway.process.wait(20) == 0


def test_drain_delay_fails_readiness_at_once_and_still_accepts(start, sqlite_url, upstream):
    gateway = start(sqlite_url, '--drain-delay', '200s', '--shutdown-deadline', '200s')
    assert gateway.get_admin('/readyz')[0] == 200
    gateway.process.send(signal.SIGTERM)
    wait_until(lambda: gateway.get_admin('/readyz')[0] == 503)
    assert gateway.post('late').status == 201 and upstream.effects['late'] == 1
    gateway.process.send(signal.SIGTERM)
    assert gateway.process.wait(20) == 128 + signal.SIGTERM


def test_when_the_drain_delay_is_over_it_ends(start, sqlite_url):
    code, took = end_of(start(sqlite_url, '--drain-delay', '500ms'), 20)
    assert code == 0 and took >= 0.5, (code, took)


def test_the_deadline_leaves_what_was_sent_unknown_and_never_releases_it(start, pg_store_url, upstream):
    gateway, other = start(pg_store_url, '--shutdown-deadline', '300ms'), start(pg_store_url)
    upstream.plan.append(up.hangs(True))
    call = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    gateway.process.send(signal.SIGTERM)
    assert gateway.process.wait(20) == 75
    first = call.result(10)
    assert (first.status, first.problem) == (502, 'upstream-unknown')
    second = other.post('k')
    assert (second.status, second.problem) == (409, 'outcome-unknown')
    upstream.release.set()
    assert other.post('k').problem == 'outcome-unknown' and upstream.effects['k'] == 1


def test_claims_that_were_not_sent_are_released_at_the_cut(start, sqlite_url, upstream, tmp):
    (tmp / 'g.yaml').write_text('upstream_connections_max: 1\n')
    gateway = start(sqlite_url, '--shutdown-deadline', '300ms', '--config', str(tmp / 'g.yaml'))
    upstream.plan.append(up.hangs(True))
    running = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    waits = gateway.background('j')
    wait_until(lambda: gateway.metric('semel_gateway_upstream_waiting') == 1)
    gateway.process.send(signal.SIGTERM)
    assert gateway.process.wait(20) == 75
    assert running.result(10).problem == 'upstream-unknown'
    refused = waits.result(10)
    assert (refused.problem, refused.header('Idempotency-Outcome')) == ('upstream-unreachable',
                                                                        'not-executed')
    upstream.release.set()
    again = start(sqlite_url)
    assert again.post('k').problem == 'outcome-unknown'
    assert again.post('j').status == 201
    assert upstream.effects == {'k': 1, 'j': 1}


def test_the_deadline_also_ends_an_upstream_that_does_not_accept(procs, build, sqlite_url):
    """Connecting hangs: nothing was sent, so nothing is held."""
    with socket.socket() as full:
        full.bind(('127.0.0.1', 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for s in fillers:
            s.setblocking(False)
            s.connect_ex(full.getsockname())
        gateway = Gateway(procs, build.semel, f'http://127.0.0.1:{full.getsockname()[1]}', sqlite_url,
                          '--shutdown-deadline', '300ms')
        call = gateway.background('k')
        wait_until(lambda: gateway.metric('semel_gateway_requests') == 1)
        gateway.process.send(signal.SIGTERM)
        assert gateway.process.wait(20) == 75
        assert call.result(10).problem == 'upstream-unreachable'
        for s in fillers:
            s.close()


def test_a_client_that_left_unseen_is_not_waited_for(start, sqlite_url, upstream):
    """It asks on while its reply is made, more than is read ahead, and resets: that is seen only when
    the reply, too large to be gathered, cannot be written."""
    gateway = start(sqlite_url)
    big = b'HTTP/1.1 201 Created\r\nContent-Length: 100000\r\n\r\n' + b'b' * 100000
    upstream.plan.append(up.when(upstream.release, up.answers(big, executes=True)))
    with gateway.leaving('k') as s:
        assert upstream.reached.wait(20)
        s.setblocking(False)

        def full():
            try:
                s.send(b'POST /next HTTP/1.1\r\n' * 1000)
            except BlockingIOError:
                return True
        wait_until(full)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    upstream.release.set()
    gateway.wait_quiet()
    assert gateway.post('k').replayed and upstream.effects['k'] == 1
    assert gateway.process.terminate(10) == 0


@pytest.fixture
def broken_store(procs, build, pg_own, semel, upstream):
    """(gateway, server): behind a database of its own."""
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0

    def go(*options):
        return Gateway(procs, build.semel, upstream.url, url, *options)
    return go, pg_own


def end_of(gateway, timeout):
    """(exit code, seconds since SIGTERM)."""
    begun = time.monotonic()
    gateway.process.send(signal.SIGTERM)
    code = gateway.process.wait(timeout)
    return code, time.monotonic() - begun


def test_without_its_store_the_cut_is_as_with_it(broken_store, upstream):
    """The upstream hangs, and there is no database: nothing can be marked.  The client hears the same 502,
    a second after the deadline, and the key is never free."""
    start, server = broken_store
    gateway = start('--shutdown-deadline', '1s', '--lease', '6s', '--upstream-timeout', '5s')
    upstream.plan.append(up.hangs(True))
    call = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    server.stop()
    code, took = end_of(gateway, 20)
    assert code == 75 and 1 <= took < 5, (code, took)
    first = call.result(10)
    assert (first.status, first.problem) == (502, 'upstream-unknown')
    server.start()
    again = start('--lease', '6s', '--upstream-timeout', '5s')
    reply = wait_until(lambda: (r := again.post('k')).problem != 'in-flight' and r, timeout=20)
    assert (reply.status, reply.problem) == (409, 'outcome-unknown')
    assert upstream.effects['k'] == 1


def stops_before_its_reply(server):
    """The effect happens; then the store is gone, and only then comes the reply."""
    def strikes(u, conn, request):
        reply = u.execute(request)
        server.stop()
        conn.sendall(reply)
        return True
    return strikes


def test_a_reply_that_cannot_be_kept_is_told_at_the_cut(broken_store, upstream):
    """As long as the lease lasts the database may come back; when the process must end, the client has its
    reply all the same, with the warning."""
    start, server = broken_store
    gateway = start('--shutdown-deadline', '2s')
    upstream.plan.append(stops_before_its_reply(server))
    call = gateway.background('k')
    wait_until(lambda: server.popen.poll() is not None)
    code, took = end_of(gateway, 20)
    assert code == 75 and 2 <= took < 6, (code, took)
    first = call.result(10)
    assert (first.status, first.header('Semel-Warning')) == (201, 'reply-not-recorded')
    assert first.body.startswith(b'effect 1 of k') and upstream.effects['k'] == 1


def test_a_record_that_pauses_at_the_cut_is_tried_once_more(start, sqlite_url, upstream):
    """It was to be tried again in a moment anyway; at the cut the database is locked, so that this one try is
    all there is.  The client has its reply all the same, and the process its exit code."""
    gateway = start(sqlite_url, '--shutdown-deadline', '0s')
    upstream.plan.append(up.hangs(True))
    call = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    with refused(sqlite_url, 'UPDATE'):
        with locked(sqlite_url):
            upstream.release.set()
            wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 1, what='the record')
        wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 0, what='the record to fail')
        with locked(sqlite_url):
            assert not call.done()
            gateway.process.send(signal.SIGTERM)
            first = call.result(20)
        assert gateway.process.wait(20) == 75
    assert (first.status, first.header('Semel-Warning')) == (201, 'reply-not-recorded')
    assert first.body.startswith(b'effect 1 of k') and upstream.effects['k'] == 1


def test_a_store_that_comes_back_during_the_drain_keeps_the_reply(broken_store, upstream):
    start, server = broken_store
    gateway = start()
    upstream.plan.append(stops_before_its_reply(server))
    call = gateway.background('k')
    wait_until(lambda: server.popen.poll() is not None)
    gateway.process.send(signal.SIGTERM)
    wait_until(lambda: 'draining' in gateway.process.err())
    server.start()
    assert gateway.process.wait(20) == 0
    first = call.result(10)
    assert (first.status, first.header('Semel-Warning')) == (201, None)
    again = start().post('k')
    assert again.replayed and again.body == first.body and upstream.effects['k'] == 1


def test_claims_that_wait_for_a_dead_store_do_not_hold_the_drain(broken_store, upstream):
    start, server = broken_store
    gateway = start()
    assert gateway.post('before').status == 201
    server.stop()
    call = gateway.background('k')
    wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 1)
    code, took = end_of(gateway, 24)
    assert code == 0 and took < 15, (code, took)
    assert call.result(10).problem == 'store-down' and upstream.effects['k'] == 0


@pytest.mark.parametrize('work', ['upstream works', 'duplicate waits', 'client left'])
def test_a_drain_after_a_pause_and_a_crash_of_the_database_is_short(broken_store, upstream, work):
    """The gateway sleeps beyond its lease while the database crashes and comes back; then it is told to
    end.  Nothing of before holds it: its drain is as short as any."""
    start, server = broken_store
    gateway = start('--lease', '3s', '--upstream-timeout', '1800ms')
    upstream.plan += [up.hangs(True), up.hangs(True)]
    call = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    if work == 'duplicate waits':
        second = gateway.background('k', headers=[('Prefer', 'wait=20')])
        wait_until(lambda: gateway.metric('semel_gateway_waiters') == 1)
    elif work == 'client left':
        with gateway.leaving('j'):
            wait_until(lambda: upstream.effects['j'] == 1)
    gateway.process.stop()
    server.restart()
    slept = time.monotonic()
    wait_until(lambda: time.monotonic() - slept > 3.2)
    gateway.process.cont()
    code, took = end_of(gateway, 24)
    assert code == 0 and took < 12, (code, took)
    assert call.result(10).status in (502, 504)
    if work == 'duplicate waits':
        assert second.result(10).status in (409, 503)
    assert upstream.effects['k'] == 1


def test_what_the_store_answers_last_is_told_by_several_workers(start, sqlite_url, upstream, monkeypatch):
    """None of them can mark its requests as unknown while the database is locked: their stores answer when
    they are closed, one after the other.  Memory that was given back is of no use to anybody then."""
    monkeypatch.setenv('MALLOC_PERTURB_', '85')
    gateway = start(sqlite_url, '--workers', '4', '--shutdown-deadline', '0s')
    upstream.plan = Forever(up.hangs(True))
    calls = [gateway.background(f'k{i}') for i in range(12)]
    wait_until(lambda: upstream.total() == 12)
    with locked(sqlite_url):
        gateway.process.send(signal.SIGTERM)
        assert {c.result(20).problem for c in calls} == {'upstream-unknown'}
    assert gateway.process.wait(20) == 75


def test_a_request_that_comes_during_the_cut_is_not_begun(start, sqlite_url, upstream):
    """Its head had come by half when the drain began; there is no time left for it."""
    gateway = start(sqlite_url, '--shutdown-deadline', '0s')

    def client(*lines):
        s = socket.create_connection(('127.0.0.1', gateway.port), timeout=20)
        s.sendall(b'POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: late\r\n' + b'\r\n'.join(lines))
        return s
    with client(b'Content-Length: 0\r\n') as late, client(b'Content-Length: 2', b'', b'x') as unsent:
        with refused(sqlite_url, 'UPDATE'):  # the record is tried for a second after the cut
            call = gateway.background('k')
            wait_until(lambda: gateway.metric('semel_gateway_upstream_seconds_count') == 1)
            upstream.plan.append(up.hangs(True))
            gateway.process.send(signal.SIGTERM)
            assert unsent.recv(1) == b''  # cut
            with contextlib.suppress(ConnectionError):
                late.sendall(b'\r\n')
                assert late.recv(1) == b''
            assert gateway.process.wait(20) == 75
    first = call.result(10)
    assert (first.status, first.header('Semel-Warning')) == (201, 'reply-not-recorded')
    assert upstream.effects == {'k': 1} and upstream.plan


def test_a_second_signal_ends_it_at_once(start, sqlite_url, upstream):
    gateway = start(sqlite_url)
    upstream.plan.append(up.hangs(True))
    call = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    gateway.process.send(signal.SIGTERM)
    wait_until(lambda: 'draining' in gateway.process.err())
    begun = time.monotonic()
    gateway.process.send(signal.SIGTERM)
    assert gateway.process.wait(5) == 128 + signal.SIGTERM
    assert time.monotonic() - begun < 3
    with pytest.raises(Exception):
        call.result(10)


def test_as_pid_1(procs, build, sqlite_url, upstream):
    """Where a signal without a handler is not delivered at all."""
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url, prefix=PID_1)
    assert gateway.post('k').status == 201
    os.kill(pid_1_below(gateway.process.pid), signal.SIGTERM)
    assert gateway.process.wait(20) == 0


class Fleet:
    """Clients in a loop: each key is sent until it is answered, at most twice in a row, the second time
    to the other gateway."""

    def __init__(self, ports, clients=8):
        self.ports = ports
        self.stop = threading.Event()
        self.failed, self.retried, self.done = [], [], {}
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(c,), daemon=True)
                        for c in range(clients)]
        for t in self.threads:
            t.start()

    def run(self, client):
        i = 0
        while not self.stop.is_set():
            key = f'c{client}-{i}'
            i += 1
            first = (client + i) % 2
            try:
                self.send(key, first)
            except Exception as why:  # noqa: BLE001: a connection that broke, in any way
                with self.lock:
                    self.retried.append((key, repr(why)))
                try:
                    self.send(key, 1 - first)
                except Exception as again:  # noqa: BLE001
                    with self.lock:
                        self.failed.append((key, repr(why), repr(again)))

    def send(self, key, which):
        """A 409 means that the first one still runs: ask again with patience, as it says."""
        end = time.monotonic() + 20
        while True:
            status, replayed, body = post(self.ports()[which], key)
            if status == 201:
                with self.lock:
                    self.done[key] = body
                return
            if status != 409 or b'in-flight' not in body or time.monotonic() > end:
                raise AssertionError(f'{status} {body}')

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive()


def test_h64_two_gateways_restarted_in_turn_under_load_fail_nobody_who_retries_once(
        start, pg_store_url, upstream):
    def works(u, conn, request):
        threading.Event().wait(0.02)  # so that the signal strikes requests that run
        conn.sendall(u.execute(request))
        return True
    upstream.plan = Forever(works)
    gateways = [start(pg_store_url), start(pg_store_url)]
    fleet = Fleet(lambda: [g.port for g in gateways])
    struck = 0
    for turn in range(4):
        done = len(fleet.done)
        wait_until(lambda: len(fleet.done) > done + 50, timeout=30)
        old = gateways[turn % 2]
        wait_until(lambda: old.metric('semel_gateway_requests') > 0)
        old.process.send(signal.SIGTERM)
        struck += 1
        assert old.process.wait(30) == 0
        gateways[turn % 2] = start(pg_store_url)
    done = len(fleet.done)
    wait_until(lambda: len(fleet.done) > done + 50, timeout=30)
    fleet.end()
    assert fleet.failed == [], fleet.failed[:5]
    assert struck == 4 and len(fleet.done) > 250
    assert all(n == 1 for n in upstream.effects.values()), upstream.effects.most_common(3)
    assert set(fleet.done) <= set(upstream.effects)
    print(f'{len(fleet.done)} requests, {len(fleet.retried)} of them sent twice')


def test_a_service_manager_is_told(procs, build, sqlite_url, upstream, tmp):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp / 'notify'))
        manager.settimeout(10)
        gateway = procs.start([build.semel, 'gateway', '--listen', '127.0.0.1:0', '--upstream',
                               upstream.url, '--db', sqlite_url, '--workers', '2'],
                              env={'NOTIFY_SOCKET': tmp / 'notify', 'WATCHDOG_USEC': '200000'})
        heard = [manager.recv(100) for _ in range(4)]
        assert b'READY=1' in heard and heard.count(b'WATCHDOG=1') >= 2
        gateway.send(signal.SIGTERM)
        wait_until(lambda: manager.recv(100) == b'STOPPING=1')
        assert gateway.wait(10) == 0

# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom: the upstream's time runs while it is waited for, and a client's while it is;
an upstream of several addresses is asked at one that takes connections; replies that are odd."""
import contextlib
import socket
import threading
import time

import pytest

from support import Store
from support import upstream as up
from support.binaries import FULL
from support.process import with_hosts
from support.upstream import Upstream
from support.wait import wait_until
from support.wire import connect, read_all, statuses

LARGE = 12_000_000
WORD = b'w' * 62
POST = b'POST /orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n'
KEYED = b'Idempotency-Key: k\r\n'
PATIENCE = 1 if FULL else 4  # upstream_timeout, in seconds
ENDLESS = 'body_timeout: 1s\n'  # with an upstream that may take a minute


def sends_large(done, body=b'l' * LARGE):
    """A reply that does not fit between the upstream and a client that does not read."""
    def behave(u, conn, request):
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
        done.append(request.path)
        return True
    return behave


@contextlib.contextmanager
def reader(gateway, request, room=4096):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        s.settimeout(60)
        s.connect(('127.0.0.1', gateway.port))
        s.sendall(request)
        yield s


def test_a_client_that_takes_its_reply_slowly_is_not_cut_by_the_upstreams_time(start_gateway, upstream):
    """A passed reply, and one of a key that is too large to keep: at a slow pace for some times
    upstream_timeout, then fast."""
    gateway = start_gateway('--upstream-timeout', f'{PATIENCE}s')
    done = []
    upstream.plan += [sends_large(done)] * 2
    with reader(gateway, b'GET /passed HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n') as passed, \
            reader(gateway, b'POST /keyed HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nConnection: close\r\n'
                            b'Content-Length: 0\r\n\r\n') as keyed:
        out = {s: s.recv(1024) for s in (passed, keyed)}
        begun = time.monotonic()
        while time.monotonic() - begun < 2.5 * PATIENCE:
            for s in out:
                out[s] += s.recv(512)
            threading.Event().wait(0.05)
        assert not done, 'the whole of a reply has left the upstream'
        for s in out:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
            out[s] += read_all(s)
            assert len(out[s].split(b'\r\n\r\n', 1)[1]) == LARGE
    assert sorted(done) == ['/keyed', '/passed']


def test_a_client_that_is_silent_amid_its_upload_is_not_told_that_the_upstream_is(start_gateway, upstream):
    gateway = start_gateway('--upstream-timeout', f'{PATIENCE}s')
    with connect(gateway) as s:
        s.sendall(b'POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n'
                  b'5\r\nhello\r\n')
        wait_until(lambda: upstream.connections)
        s.settimeout(2 * PATIENCE)
        with pytest.raises(TimeoutError):  # for twice upstream_timeout nothing is said
            s.recv(1)
        assert not upstream.requests
        s.settimeout(20)
        s.sendall(b'6\r\n world\r\n0\r\n\r\n')
        assert statuses(read_all(s)) == [201]
    assert upstream.requests[0].body.startswith(b'5\r\nhello\r\n')


def test_an_upstream_that_does_not_answer_an_upload_is_still_cut(start_gateway, upstream):
    """Its time begins when the whole of the body was given to it, or when it takes no more of it."""
    gateway = start_gateway('--upstream-timeout', f'{PATIENCE}s')
    head = b'POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n'
    upstream.plan.append(up.hangs(False))
    with connect(gateway) as s:
        s.sendall(head % 5 + b'he')
        wait_until(lambda: upstream.connections)
        s.sendall(b'llo')
        assert statuses(read_all(s)) == [504]

    def reads_nothing(u, conn, request):
        conn.recv(1)
        u.release.wait(60)
    reads_nothing.before_reading = True
    upstream.plan.append(reads_nothing)
    upstream.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    with connect(gateway, timeout=0.2) as s:
        with contextlib.suppress(OSError):  # until nobody takes more, or the answer is there
            s.sendall(head % 100_000_000 + b'x' * 90_000_000)
        s.settimeout(20)
        assert statuses(read_all(s)) == [504]
    assert upstream.struck == 2


@pytest.mark.parametrize('upload', ['goes on', 'has ended'])
def test_a_client_that_takes_nothing_of_an_early_reply_is_still_cut(start_gateway, upstream, upload):
    """The reply began before the request's end, so that either might wait for the other for ever."""
    gateway = start_gateway('--upstream-timeout', '50s', config=ENDLESS)
    begun = threading.Event()

    def floods(u, conn, request):
        conn.recv(1)
        conn.settimeout(0.5)
        with contextlib.suppress(TimeoutError):  # nobody takes more
            conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n' + b'x' * 50_000_000)
        begun.set()
        u.release.wait(60)
    floods.before_reading = True
    upstream.plan.append(floods)
    length = 100_000_000 if upload == 'goes on' else 2000
    with reader(gateway, b'POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n' % length + b'x' * 1000) as s:
        assert begun.wait(60)
        s.settimeout(0.2)
        with contextlib.suppress(OSError):
            s.sendall(b'x' * (length - 1000))
        gateway.wait_quiet()
        wait_until(lambda: gateway.metric('semel_gateway_connections') == 0)


# -- a name with several addresses ---------------------------------------------------------------------

@pytest.fixture
def named_gateway(start_gateway, upstream, tmp):
    """named_gateway('::1', '127.0.0.1') -> a gateway that knows its upstream by a name of these addresses."""
    def start(*addresses, config=None):
        (tmp / 'hosts').write_text(''.join(f'{a} several\n' for a in addresses))
        upstream.plan = up.Forever(takes_one)
        return start_gateway(url=f'http://several:{upstream.port}', prefix=with_hosts(tmp / 'hosts'), config=config)
    return start


def takes_one(u, conn, request):
    """A request on each connection."""
    conn.sendall(u.execute(request).replace(b'\r\n', b'\r\nConnection: close\r\n', 1))


def test_an_address_that_refuses_is_passed_over(named_gateway, upstream):
    """::1 and 127.0.0.3 always do, 127.0.0.2 from when it has had its turn as the others."""
    gateway = named_gateway('::1', '127.0.0.3', '127.0.0.1', '127.0.0.2')
    other = Upstream(host='127.0.0.2', port=upstream.port)
    other.plan = upstream.plan
    assert [gateway.post(f'a{i}').status for i in range(10)] == [201] * 10
    assert upstream.total() and other.total(), 'one of them has all'
    other.listener.shutdown(socket.SHUT_RDWR)
    before = upstream.total()
    assert [gateway.post(f'b{i}').status for i in range(10)] == [201] * 10
    assert upstream.total() - before == 10
    assert upstream.effects + other.effects == {f'{k}{i}': 1 for k in 'ab' for i in range(10)}
    other.close()


def test_only_when_no_address_takes_connections_a_request_has_failed(named_gateway, upstream):
    gateway = named_gateway('::1', '127.0.0.1', '127.0.0.2')
    upstream.listener.shutdown(socket.SHUT_RDWR)
    assert [gateway.post('k').problem for _ in range(3)] == ['upstream-unreachable'] * 3
    upstream.close()
    back = Upstream(port=upstream.port)
    assert gateway.post('k').status == 201 and back.effects == {'k': 1}
    back.close()


def test_an_address_that_does_not_answer_leaves_time_for_the_next(named_gateway, upstream):
    gateway = named_gateway('127.0.0.1', '127.0.0.2', config='connect_timeout: 2s\n')
    with contextlib.ExitStack() as held, socket.socket() as silent:
        silent.bind(('127.0.0.2', upstream.port))
        silent.listen(0)
        for _ in range(4):  # past the room of its backlog nobody is answered
            s = held.enter_context(socket.socket())
            s.setblocking(False)
            s.connect_ex(silent.getsockname())
        begun = time.monotonic()
        assert [gateway.post(f'k{i}').status for i in range(3)] == [201] * 3
        assert time.monotonic() - begun > 0.9, 'nobody waited for the silent one'


# -- an odd reply ---------------------------------------------------------------------------------------

def test_a_long_reason_that_is_cut_at_a_blank_reaches_its_client(start_gateway, upstream):
    """63 bytes of it are kept."""
    gateway = start_gateway()
    upstream.plan = up.Forever(up.answers(b'HTTP/1.1 201 %s and more\r\nContent-Length: 2\r\n\r\nok' % WORD,
                                          executes=True))
    said = [gateway.raw(POST % field) for field in (KEYED, KEYED, b'')]
    assert [raw.split(b'\r\n')[0] for raw in said] == [b'HTTP/1.1 201 ' + WORD] * 3
    assert [b'Idempotent-Replayed' in raw for raw in said] == [False, True, False]
    assert upstream.effects['k'] == 1


def test_a_reason_that_was_stored_with_a_blank_at_its_end_is_replayed(start_gateway, upstream, build, sqlite_url):
    gateway = start_gateway()
    upstream.plan.append(up.answers(b'HTTP/1.1 201 %sx\r\nContent-Length: 2\r\n\r\nok' % WORD, executes=True))
    assert statuses(gateway.raw(POST % KEYED)) == [201]
    assert gateway.process.terminate() == 0
    store = Store(build, sqlite_url)
    ((before,),) = store.sql('SELECT headers FROM semel_command', None)
    store.sql('UPDATE semel_command SET headers = ?', None, (before.replace(WORD + b'x', WORD + b' '),))
    assert store.sql('SELECT headers FROM semel_command', None) != [(before,)]
    raw = start_gateway().raw(POST % KEYED)
    assert raw.startswith(b'HTTP/1.1 201 %s\r\n' % WORD) and b'Idempotent-Replayed: true' in raw

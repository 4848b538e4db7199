# SPDX-License-Identifier: Apache-2.0
"""Connections that are used again, on both sides of the gateway: nothing of one request is ever taken for
another's, and what breaks amid a message ends that message alone."""
import contextlib
import socket
import subprocess
import threading
import time

import pytest

from ports import free_port
from support import upstream as up
from support.gateway import Gateway
from support.upstream import Upstream, reset
from support.wait import wait_until
from support.wire import connect, read_all, read_until, statuses

LARGE = b'l' * 100_000


def reply(*headers, body=b'done', status=b'200 OK'):
    lines = b''.join(h + b'\r\n' for h in (*headers, b'Content-Length: %d' % len(body)))
    return up.answers(b'HTTP/1.1 %s\r\n%s\r\n%s' % (status, lines, body), executes=True)


# -- kept connections to the upstream ------------------------------------------------------------------

FIRST = {  # how the reply before ended
    'plain': reply(),
    'not to be kept': reply(b'Cache-Control: no-store'),
    'not to be kept, and empty': reply(b'Cache-Control: no-store', body=b''),
    'too large to keep': reply(body=LARGE),
}
THEN = {  # what the upstream does on the idle connection
    'says 408': lambda c: c.sendall(b'HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n'),
    'says 408 and closes': lambda c: (c.sendall(b'HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n'
                                                b'Connection: close\r\n\r\n'), c.shutdown(socket.SHUT_RDWR)),
    'says more': lambda c: c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nsomeone else'),
    'closes': lambda c: c.shutdown(socket.SHUT_RDWR),
}


@pytest.mark.parametrize('first', FIRST)
@pytest.mark.parametrize('then', THEN)
def test_h63_what_comes_on_an_idle_connection_answers_nobody(start_gateway, upstream, first, then):
    gateway = start_gateway('--upstream-timeout', '5s', config='policy:\n  reply_body_max: 64KiB\n')
    upstream.plan.append(FIRST[first])
    assert gateway.post('a').status == 200
    conn, = upstream.connections  # that is kept, and idle
    with contextlib.suppress(OSError):  # the gateway may have closed it already
        THEN[then](conn)
    second = gateway.post('b')
    assert (second.status, upstream.effects['b']) == (201, 1)
    again = gateway.post('b')
    assert again.replayed and again.body == second.body and upstream.effects['b'] == 1


def test_a_connection_whose_reply_was_held_back_is_used_again(start_gateway, upstream):
    gateway = start_gateway()
    for i in range(3):
        upstream.plan.append(reply(b'Cache-Control: no-store', body=b'' if i == 1 else b'done'))
        assert gateway.post(f'k{i}').status == 200
    assert len(upstream.connections) == 1


# -- a first write that fails ----------------------------------------------------------------------------

EPIPE_ONCE = r'''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int fails(const void *p, size_t n)
{
        static int done;
        if (done || !memmem(p, n < 64 ? n : 64, " /again ", 8))
                return 0;
        errno = EPIPE;
        return done = 1;
}
ssize_t write(int fd, const void *p, size_t n)
{
        ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
        return fails(p, n) ? -1 : real(fd, p, n);
}
ssize_t writev(int fd, const struct iovec *v, int n)
{
        ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
        return n > 0 && fails(v[0].iov_base, v[0].iov_len) ? -1 : real(fd, v, n);
}
'''


@pytest.fixture
def broken_write(procs, build, upstream, sqlite_url, tmp):
    """A gateway with a kept connection, on which the first write of a request for /again will fail."""
    (tmp / 'epipe.c').write_text(EPIPE_ONCE)
    subprocess.run(['gcc', '-shared', '-fPIC', '-o', tmp / 'epipe.so', tmp / 'epipe.c'], check=True)
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url, '--upstream-timeout', '20s',
                      prefix=('env', f'LD_PRELOAD={tmp}/epipe.so'))
    assert gateway.post('warm').status == 201
    yield gateway
    assert len(upstream.connections) == 2  # the kept one was given up


@pytest.mark.preload
@pytest.mark.parametrize('body', [b'x=1', b'x' * 50_000], ids=['small', 'large'])
def test_what_was_not_sent_goes_over_another_connection(broken_write, upstream, body):
    first = broken_write.post('k', body, path='/again', timeout=10)  # before upstream_timeout
    assert first.status == 201 and upstream.effects['k'] == 1
    assert upstream.requests[-1].body == body
    assert broken_write.post('k', body, path='/again').replayed


@pytest.mark.preload
def test_without_a_key_and_a_body_it_goes_over_another_connection(broken_write, upstream):
    assert broken_write.request('GET', '/again').status == 200
    assert [r.path for r in upstream.requests] == ['/orders', '/again']


@pytest.mark.preload
@pytest.mark.parametrize('frame', [b'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
                                   b'Content-Length: 5\r\n\r\nhello'], ids=['chunked', 'length'])
def test_a_streamed_body_that_was_not_sent_is_never_sent_without_its_beginning(broken_write, upstream, frame):
    raw = broken_write.raw(b'POST /again HTTP/1.1\r\nHost: h\r\nConnection: close\r\n' + frame)
    assert statuses(raw) == [502] and b'upstream-unreachable' in raw
    assert b'Idempotency-Outcome: not-executed' in raw
    assert broken_write.post(path='/again', body=b'hello').status == 201
    assert [r.body for r in upstream.requests if r.path == '/again'] == [b'hello']


# -- what breaks amid a message ----------------------------------------------------------------------------

def test_a_client_that_resets_amid_a_large_reply_ends_alone(start_gateway, upstream):
    """It has asked far ahead, so that nothing of it is read and its reset is found by writing."""
    gateway = start_gateway()
    upstream.plan.append(up.when(upstream.release, up.answers(
        b'HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n' + b'x' * 10000)))
    s = connect(gateway)
    s.sendall(b'GET /a HTTP/1.1\r\nHost: h\r\n\r\n' + b'GET /b HTTP/1.1\r\nHost: h\r\n\r\n' * 6000)
    assert upstream.reached.wait(10)
    reset(s)
    upstream.release.set()
    gateway.wait_quiet()
    assert gateway.process.alive() and gateway.post('k').status == 201


def test_an_upstream_that_resets_amid_an_upload_ends_it_alone(start_gateway, upstream):
    """It answers early and without end, the client does not read: the reset is found by writing."""
    gateway = start_gateway()
    was_reset = threading.Event()

    def floods(u, conn, request):
        conn.recv(65536)
        conn.settimeout(0.5)
        try:
            conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n' + b'x' * 90_000_000)
        except TimeoutError:  # nobody takes more
            pass
        reset(conn)
        was_reset.set()
    floods.before_reading = True
    upstream.plan.append(floods)
    chunk = b'1000\r\n' + b'x' * 4096 + b'\r\n'
    with connect(gateway) as s:
        s.sendall(b'POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n' + chunk)
        assert was_reset.wait(30)
        s.sendall(chunk + chunk)
        read_all(s)  # to the end of it: cut
    gateway.wait_quiet()
    assert gateway.process.alive() and gateway.post('k').status == 201


# -- a body that was held back ------------------------------------------------------------------------------

def test_a_body_that_was_held_back_is_never_a_request(procs, build, sqlite_url):
    """Answered before its body was looked at: the body is dropped, and what follows is the next request."""
    port = free_port()  # nobody is there yet
    gateway = Gateway(procs, build.semel, f'http://127.0.0.1:{port}', sqlite_url)
    body = b'POST /smuggled HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n'
    with connect(gateway) as s:
        s.sendall(b'POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
        assert statuses(read_until(s, b'upstream-unreachable')) == [502]
        upstream = Upstream(port=port)
        for path in (b'/second', b'/third'):
            s.sendall(b'GET %s HTTP/1.1\r\nHost: h\r\n\r\n' % path)
            assert statuses(read_until(s, b'hello')) == [200]
        assert [r.path for r in upstream.requests] == ['/second', '/third']
    upstream.close()


# -- a drain ------------------------------------------------------------------------------------------------

def test_a_reply_that_its_client_still_takes_outlives_a_drain(start_gateway, upstream):
    """Of a size that the gateway holds the last of it, and has begun to wait for the next request."""
    gateway = start_gateway()
    for size in range(1_000_000, 9_000_000, 100_000):
        upstream.plan.append(up.answers(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s' % (size, b'x' * size)))
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', gateway.port))
        s.sendall(b'GET /large HTTP/1.1\r\nHost: h\r\n\r\n')
        struck = upstream.struck + 1
        wait_until(lambda: upstream.struck == struck)
        try:  # the whole of it is in the gateway: too little to stop the upstream, too much for the kernel
            wait_until(lambda: gateway.metric('semel_gateway_requests') == 0 and
                       gateway.metric('semel_gateway_buffered_bytes') > 0, timeout=1)
            break
        except (AssertionError, TimeoutError):
            s.close()
            gateway.wait_quiet()
    else:
        pytest.fail('no size left a rest in the gateway')
    gateway.process.send(15)
    wait_until(lambda: 'draining' in gateway.process.err())
    raw = read_all(s)
    assert len(raw.split(b'\r\n\r\n', 1)[1]) == size
    assert gateway.process.wait(20) == 0


# -- what is said upstream -----------------------------------------------------------------------------------

def head_of(gateway, upstream, raw):
    with connect(gateway) as s:
        s.sendall(raw)
        read_until(s, b'hello')
    return upstream.requests[-1].headers


def values(headers, name):
    return [v for k, v in headers if k.lower() == name]


def test_lists_of_several_lines_are_passed_on_whole(gateway, upstream):
    headers = head_of(gateway, upstream, b'GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nVia: 1.1 a\r\n'
                      b'X-Forwarded-For: 9.9.9.9\r\nVia: 1.1 b\r\nForwarded: for=6.6.6.6\r\nForwarded: for=9.9.9.9\r\n\r\n')
    assert values(headers, 'x-forwarded-for') == ['6.6.6.6, 9.9.9.9, 127.0.0.1']
    assert values(headers, 'via') == ['1.1 a, 1.1 b, 1.1 semel']
    assert values(headers, 'forwarded') == ['for=6.6.6.6, for=9.9.9.9, for=127.0.0.1;proto=http']


@pytest.mark.parametrize('request_line, host', [
    (b'GET /a HTTP/1.1\r\nHost: shop.test\r\n\r\n', 'shop.test'),
    (b'GET http://shop.test/a HTTP/1.1\r\nHost: other.test\r\n\r\n', 'shop.test'),
    (b'GET /a HTTP/1.0\r\n\r\n', None),
], ids=['field', 'absolute', 'none'])
def test_the_upstream_is_told_one_host(gateway, upstream, request_line, host):
    headers = head_of(gateway, upstream, request_line)
    assert values(headers, 'host') == [host or f'127.0.0.1:{upstream.port}']


# -- a key that must be free -----------------------------------------------------------------------------------

def test_h62_a_release_is_tried_again_until_the_store_is_back(procs, build, pg_own, semel):
    """The upstream refuses, and the store is away for longer than one write may take."""
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0
    upstream = Upstream()
    gateway = Gateway(procs, build.semel, upstream.url, url, '--lease', '40s', '--upstream-timeout', '5s')
    down = threading.Event()

    def strikes(u, conn, request):
        pg_own.stop('immediate')
        conn.sendall(b'HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n')
        down.set()
        return True
    upstream.plan.append(strikes)
    call = gateway.background('k')
    assert down.wait(20)
    begun = time.monotonic()
    wait_until(lambda: call.done() or time.monotonic() - begun > 6, timeout=30)  # one write has 5 s
    assert not call.done()
    pg_own.start()
    first = call.result(30)
    assert (first.status, first.header('Semel-Warning')) == (429, None)
    assert gateway.metric('semel_gateway_unrecorded_total') == 0
    again = gateway.post('k')
    assert (again.status, again.replayed, upstream.effects['k']) == (201, False, 1)
    upstream.close()


def test_a5a_a_refusal_after_still_running_does_not_free_the_key(start_gateway, upstream):
    gateway = start_gateway('--idempotent', '--upstream-timeout', '10s')
    upstream.plan += [up.says_running_once, up.answers(b'HTTP/1.1 429 Slow Down\r\nContent-Length: 0\r\n\r\n')]
    first = gateway.post('k', b'charge=1')
    assert (first.status, first.header('Semel-Warning')) == (429, 'outcome-unknown')
    assert gateway.post('k', b'charge=999').status == 422  # the first may still run
    assert gateway.post('k', b'charge=1').status == 201 and upstream.effects['k'] == 1


def test_a_canonical_form_counts_as_bytes_that_are_held(start_gateway, upstream):
    gateway = start_gateway(config='buffered_bytes_max: 4MiB\npolicy:\n  fingerprint: json\n')
    json = [('Content-Type', 'application/json')]
    grows = b'[' + b'1e20,' * 300_000 + b'1]'  # 1.5 MB; 22 bytes each in canonical form
    many = gateway.post('k', grows, headers=json)
    assert (many.status, many.problem) == (503, 'overloaded')
    assert gateway.post('k', b'[' + b'1,' * 700_000 + b'1]', headers=json).status == 201
    gateway.wait_quiet()
    wait_until(lambda: gateway.metric('semel_gateway_buffered_bytes') == 0)


def test_the_log_tells_what_was_sent_from_what_was_not(start_gateway, upstream):
    gateway = start_gateway('--log', 'json')
    upstream.plan.append(up.resets_after(0, True))
    assert gateway.post('sent').status == 502
    line, = wait_until(lambda: [x for x in gateway.process.out().splitlines() if 'left_unknown' in x])
    assert '"upstream_ms":-1' not in line.replace(' ', '')

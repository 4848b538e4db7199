# SPDX-License-Identifier: Apache-2.0
"""Clients that mean ill, or are just slow: what the gateway cuts, what it bounds, and that nothing
of a broken message is ever taken for a request."""
import os
import re
import socket
import threading
import time

import pytest

from support import upstream as up
from support.upstream import Upstream
from support.wait import wait_until
from support.wire import connect, fds, read_all, read_until, statuses

HEAD = b'POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n'
SMUGGLED = b'POST /smuggled HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n'
QUICK = 'head_timeout: 1s\nbody_timeout: 1s\nidle_timeout: 1s\n'


# -- slow ones ------------------------------------------------------------------------------

def test_slow_heads_are_cut(start_gateway, upstream):
    gateway = start_gateway(config=QUICK)
    with connect(gateway) as s:
        s.sendall(b'POST / HT')
        raw = read_all(s)  # a byte now and then would not help: the time counts from the first
    assert statuses(raw) == [408]
    assert gateway.post('k').status == 201 and upstream.total() == 1


@pytest.mark.parametrize('key', [b'Idempotency-Key: k\r\n', b''], ids=['keyed', 'passed'])
def test_slow_bodies_are_cut(start_gateway, upstream, key):
    gateway = start_gateway(config=QUICK)
    with connect(gateway) as s:
        s.sendall(b'POST /orders HTTP/1.1\r\nHost: h\r\n' + key + b'Content-Length: 10\r\n\r\nx')
        raw = read_all(s)
    assert statuses(raw) == [408] and upstream.total() == 0
    gateway.wait_quiet()
    assert gateway.post('k').status == 201


def test_idle_connections_are_closed_without_a_word(start_gateway):
    gateway = start_gateway(config=QUICK)
    with connect(gateway) as s:
        assert read_all(s) == b''


def test_slow_readers_are_cut_and_what_they_leave_is_bounded(start_gateway, upstream):
    gateway = start_gateway(config=QUICK)
    body = b'r' * 900000
    upstream.plan.append(up.answers(b'HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s'
                                    % (len(body), body), executes=True))
    assert gateway.post('k').body == body
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', gateway.port))
        request = (b'POST /orders HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: k\r\n'
                   b'Content-Length: 3\r\n\r\nx=1')
        s.setblocking(False)
        highest = 0
        sent = 0

        def push():
            nonlocal highest, sent
            try:
                sent += s.send(request * 20)
            except BlockingIOError:
                pass
            except OSError:
                return True
            highest = max(highest, gateway.metric('semel_gateway_buffered_bytes'))
            return False
        wait_until(push, timeout=20, what='the connection cut')
    assert sent > 5 * len(request), 'nothing piled up'
    assert 0 < highest < 6 * 1024 * 1024
    wait_until(lambda: gateway.metric('semel_gateway_buffered_bytes') == 0)
    wait_until(lambda: gateway.metric('semel_gateway_connections') == 0)


def test_a_slow_reader_that_goes_on_reading_gets_all_of_it(start_gateway, upstream):
    """Slower than body_timeout for the whole of it, but never as long without a byte."""
    gateway = start_gateway(config=QUICK)
    body = os.urandom(1000000)
    upstream.plan.append(up.answers(b'HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s'
                                    % (len(body), body), executes=True))
    assert gateway.post('k').body == body
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', gateway.port))
        s.sendall(b'POST /orders HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: k\r\n'
                  b'Connection: close\r\nContent-Length: 3\r\n\r\nx=1')
        begun = time.monotonic()
        out = b''
        while piece := s.recv(2048):
            out += piece
            if time.monotonic() - begun < 4:
                threading.Event().wait(0.005)
    assert time.monotonic() - begun > 2
    assert out.split(b'\r\n\r\n', 1)[1] == body


def test_half_open_connections_hold_nothing(start_gateway, upstream):
    gateway = start_gateway(config=QUICK)
    before = fds(gateway)
    socks = [connect(gateway) for _ in range(50)]
    for i, s in enumerate(socks):
        s.sendall(HEAD[:i])
    assert [statuses(read_all(s)) for s in socks] == [[]] + [[408]] * 49
    for s in socks:
        s.close()
    wait_until(lambda: gateway.metric('semel_gateway_connections') == 0)
    wait_until(lambda: fds(gateway) <= before)
    assert upstream.total() == 0


# -- too much ----------------------------------------------------------------------------------

@pytest.mark.parametrize('raw, status', [
    (b'GET / HTTP/1.1\r\nHost: h\r\n' + b''.join(b'X-%d: y\r\n' % i for i in range(200)), 431),
    (b'GET / HTTP/1.1\r\nHost: h\r\nX: ' + b'y' * 40000 + b'\r\n', 431),
    (b'GET /' + b'a' * 40000 + b' HTTP/1.1\r\nHost: h\r\n', 414),
    (b'POST /o HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 11000000\r\n', 413),
    (b'CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n', 501),
    (b'GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n', 501),
], ids=['headers', 'header', 'line', 'body', 'connect', 'upgrade'])
def test_what_is_too_much_or_not_served_is_refused(gateway, upstream, raw, status):
    with connect(gateway) as s:
        s.sendall(raw + b'\r\n')
        got = s.recv(65536)
    assert statuses(got) == [status], got
    assert upstream.requests == [] and gateway.post('k').status == 201


def test_an_offer_of_h2c_is_passed_over(gateway, upstream):
    reply = gateway.post('k', headers=[('Connection', 'Upgrade, HTTP2-Settings'), ('Upgrade', 'h2c'),
                                       ('HTTP2-Settings', 'AAEAAEAA')])
    assert reply.status == 201
    low = {k.lower() for k, _ in upstream.requests[0].headers}
    assert not {'upgrade', 'http2-settings', 'connection'} & low


def test_forwarding_fields_that_grew_long_on_the_way_still_pass(gateway, upstream):
    long = ', '.join('10.0.0.%d' % (i % 250) for i in range(600))
    assert gateway.post('k', headers=[('X-Forwarded-For', long)]).status == 201
    low = {k.lower(): v for k, v in upstream.requests[0].headers}
    assert low['x-forwarded-for'] == long + ', 127.0.0.1'


# -- framing ------------------------------------------------------------------------------------

ATTACKS = {
    'length-and-chunked': HEAD + b'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'chunked-and-length': HEAD + b'Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n',
    'two-lengths': HEAD + b'Content-Length: 0\r\nContent-Length: 5\r\n\r\n',
    'list-of-lengths': HEAD + b'Content-Length: 0, 5\r\n\r\n',
    'plus-length': HEAD + b'Content-Length: +0\r\n\r\n',
    'hex-length': HEAD + b'Content-Length: 0x0\r\n\r\n',
    'negative-length': HEAD + b'Content-Length: -0\r\n\r\n',
    'huge-length': HEAD + b'Content-Length: 18446744073709551616\r\n\r\n',
    'bare-lf': HEAD[:-2] + b'\nContent-Length: 0\r\n\r\n',
    'bare-cr': HEAD[:-2] + b'\rContent-Length: 0\r\n\r\n',
    'space-before-colon': HEAD + b'Content-Length : 0\r\n\r\n',
    'obs-fold': HEAD + b'X: a\r\n b\r\nContent-Length: 0\r\n\r\n',
    'nul': HEAD + b'X: a\0b\r\nContent-Length: 0\r\n\r\n',
    'te-gzip': HEAD + b'Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
    'te-twice': HEAD + b'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'te-vt': HEAD + b'Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n',
    'te-in-http10': HEAD.replace(b'1.1', b'1.0') + b'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'chunk-plus': HEAD + b'Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n',
    'chunk-0x': HEAD + b'Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n',
    'chunk-lf': HEAD + b'Transfer-Encoding: chunked\r\n\r\n0\n\n',
    'chunk-huge': HEAD + b'Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n',
    'chunk-ext-flood': HEAD + b'Transfer-Encoding: chunked\r\n\r\n1;' + b'a' * 20000 + b'\r\nx\r\n0\r\n\r\n',
    'no-host': b'POST /o HTTP/1.1\r\nContent-Length: 0\r\n\r\n',
    'two-hosts': HEAD + b'Host: i\r\nContent-Length: 0\r\n\r\n',
    'version': HEAD.replace(b'HTTP/1.1', b'HTTP/1.10') + b'Content-Length: 0\r\n\r\n',
    'two-spaces': HEAD.replace(b'POST ', b'POST  ') + b'Content-Length: 0\r\n\r\n',
}


@pytest.mark.parametrize('attack', ATTACKS)
def test_framing_attacks_are_refused_and_nothing_behind_them_is_a_request(gateway, upstream, attack):
    with connect(gateway) as s:
        s.sendall(ATTACKS[attack] + SMUGGLED)
        raw = read_all(s)
    got = statuses(raw)
    assert len(got) == 1 and got[0] in (400, 413, 501, 505), raw
    assert upstream.requests == []
    assert gateway.metric('semel_gateway_bad_messages_total') == 1
    assert gateway.post('k').status == 201, 'the key was claimed'


@pytest.mark.parametrize('attack', [a for a in ATTACKS if a.startswith('chunk')
                                    and a != 'chunked-and-length'])
def test_framing_attacks_in_a_passed_body_reach_nobody_whole(gateway, upstream, attack):
    """Streamed, so the upstream has seen its head: but no end of a body, and nothing behind."""
    raw = ATTACKS[attack].replace(b'Idempotency-Key: k\r\n', b'')
    with connect(gateway) as s:
        s.sendall(raw + SMUGGLED)
        got = statuses(read_all(s))
    assert got == [400] or got == [431], got
    gateway.wait_quiet()
    assert upstream.total() == 0 and upstream.requests == []


def test_bytes_behind_a_reply_never_answer_the_next_key(gateway, upstream):
    extra = b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen'
    good = b'HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nmine'
    upstream.plan.append(up.answers(good + extra, executes=True))
    assert gateway.post('k1').body == b'mine'
    second = gateway.post('k2')
    assert second.body.startswith(b'effect 1 of k2'), second
    assert gateway.post('k1').body == b'mine' and gateway.post('k2').body == second.body
    # and when they come a moment later
    upstream.plan.append(up.answers(good, executes=True))
    conn = upstream.connections[-1]
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert gateway.post('k3').body == b'mine'
    conn.sendall(extra)
    assert gateway.post('k4').body.startswith(b'effect 1 of k4')
    # the same for requests without a key
    upstream.plan.append(up.answers(good + extra))
    assert gateway.post(None).body == b'mine'
    assert gateway.request('GET', '/x').body == b'hello'


def early(gateway, head, body_part, status):
    """Answered while the body is still coming: then the connection closes, or goes on behind it."""
    with connect(gateway) as s:
        s.sendall(head)
        raw = b''
        try:
            for _ in range(64):
                s.sendall(body_part)
        except OSError:
            pass
        raw = read_all(s)
    assert statuses(raw)[0] == status, raw[:300]
    assert len(statuses(raw)) == 1, raw
    return raw


@pytest.mark.parametrize('length', [b'Content-Length: 20000000', b'Transfer-Encoding: chunked'],
                         ids=['length', 'chunked'])
def test_early_answers_never_run_what_is_in_the_unread_body(gateway, upstream, length):
    """413 comes long before the body's end; the body is made of requests."""
    block = SMUGGLED * 4000
    part = block if b'Length' in length else b'%x\r\n%s\r\n' % (len(block), block)
    early(gateway, HEAD + length + b'\r\n\r\n', part, 413)
    gateway.wait_quiet()
    assert upstream.requests == [] and gateway.post('k').status == 201


@pytest.mark.parametrize('what', ['409', '422', 'replay', '400'])
def test_answers_leave_the_connection_in_step(gateway, upstream, what):
    """The next request on the connection is the one behind the body, not one inside it."""
    head = HEAD.replace(b'Host: h', b'Host: shop.test')
    body = SMUGGLED
    framed = b'Content-Length: %d\r\n\r\n%s' % (len(body), body)
    if what == '409':
        upstream.plan.append(up.hangs(True))
        running = gateway.background('k', body=body)
        wait_until(lambda: upstream.effects['k'] == 1)
    elif what == '422':
        gateway.post('k', body=b'another')
    elif what == 'replay':
        gateway.post('k', body=body)
    else:
        head = head.replace(b'k\r\n', b'a, b\r\n')
    before = len(upstream.requests)
    expected = {'409': 409, '422': 422, 'replay': 201, '400': 400}[what]
    with connect(gateway) as s:
        s.sendall(head + framed + b'GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n')
        raw = read_all(s)
    assert statuses(raw) == [expected, 200], raw
    assert [r.path for r in upstream.requests[before:]] == ['/next']
    if what == '409':
        upstream.release.set()
        running.result(20)


def test_an_upstream_that_answers_early_does_not_leave_a_request_in_the_body(start_gateway, upstream):
    """It says 400 after the head and reads no further: its connection must not be used again."""
    def answers_after_the_head(u, conn, _):
        data = b''
        while b'\r\n\r\n' not in data:
            data += conn.recv(1)
        conn.sendall(b'HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno')
        u.release.wait(20)
    answers_after_the_head.before_reading = True
    gateway = start_gateway()
    upstream.plan.append(answers_after_the_head)
    body = SMUGGLED * 100000
    assert gateway.post('k', body=body[:6000000]).status in (400, 502)
    upstream.release.set()
    assert gateway.post('k2').status == 201
    assert [r.path for r in upstream.requests] == ['/orders']


# -- what HTTP allows ---------------------------------------------------------------------------

def test_pipelined_requests_are_answered_in_order(gateway, upstream):
    many = b''.join(b'POST /p%d HTTP/1.1\r\nHost: h\r\nIdempotency-Key: p%d\r\nContent-Length: 1\r\n\r\nx'
                    % (i, i) for i in range(50))
    mixed = many + b'GET /g HTTP/1.1\r\nHost: h\r\n\r\nHEAD /h HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n'
    with connect(gateway) as s:
        s.sendall(mixed)
        raw = read_all(s)
    assert statuses(raw) == [201] * 50 + [200, 201], raw[-500:]
    assert [int(x) for x in re.findall(rb'effect 1 of p(\d+)', raw)] == list(range(50))
    assert upstream.total() == 51


def test_one_byte_at_a_time(gateway, upstream):
    with connect(gateway) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HEAD + b'Transfer-Encoding: chunked\r\n\r\n3;e=1\r\nx=1\r\n0\r\nT: u\r\n\r\n':
            s.sendall(bytes([byte]))
        raw = read_until(s, b'\xff')
    assert statuses(raw) == [201] and upstream.requests[0].body == b'x=1'


def test_a_chunked_body_is_the_same_request_as_one_with_a_length(gateway, upstream):
    first = gateway.raw(HEAD + b'Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n'
                        b'1\r\nx\r\n2\r\n=1\r\n0\r\n\r\n')
    again = gateway.raw(HEAD + b'Connection: close\r\nContent-Length: 3\r\n\r\nx=1')
    assert statuses(first + again) == [201, 201] and b'Idempotent-Replayed: true' in again
    assert upstream.total() == 1


@pytest.mark.parametrize('key', [b'Idempotency-Key: k\r\n', b''], ids=['keyed', 'passed'])
def test_expect_100_continue(gateway, upstream, key):
    with connect(gateway) as s:
        s.sendall(b'POST /o HTTP/1.1\r\nHost: h\r\n' + key + b'Content-Length: 3\r\n'
                  b'Expect: 100-continue\r\n\r\n')
        assert read_until(s, b'\r\n\r\n') == b'HTTP/1.1 100 Continue\r\n\r\n'
        s.sendall(b'x=1')
        assert statuses(read_until(s, b'\xff')) == [201]
    assert upstream.total() == 1


def test_expect_100_continue_is_not_said_to_what_is_refused(gateway, upstream):
    with connect(gateway) as s:
        s.sendall(HEAD + b'Content-Length: 20000000\r\nExpect: 100-continue\r\n\r\n')
        raw = read_all(s)
    assert statuses(raw) == [413] and upstream.requests == []


@pytest.mark.parametrize('path', ['/a%2Fb', '/a/../b', '/a/%2e%2e/b', '//a//b', '/a;v=1/./b?q=%20&r',
                                  '/caf%C3%A9', '/a?b?c#'[:-1]])
def test_paths_pass_unchanged(gateway, upstream, path):
    assert gateway.post('k', path=path).status == 201
    gateway.request('GET', path)
    assert [r.path for r in upstream.requests] == [path, path]


def test_absolute_form_is_the_same_request(gateway, upstream):
    request = b'POST %s HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n' \
              b'Connection: close\r\n\r\n'
    first, again = (gateway.raw(request % t) for t in (b'http://h/o?x=1', b'/o?x=1'))
    assert statuses(first + again) == [201, 201] and b'Idempotent-Replayed' in again
    assert upstream.requests[0].path == '/o?x=1' and upstream.total() == 1


def test_head_and_304_say_no_length_that_was_not_said(gateway, upstream):
    upstream.plan += [up.answers(b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'),
                      up.answers(b'HTTP/1.1 200 OK\r\nX: y\r\n\r\n'),
                      up.answers(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n')]
    with connect(gateway) as s:
        s.sendall(b'HEAD /a HTTP/1.1\r\nHost: h\r\n\r\nHEAD /b HTTP/1.1\r\nHost: h\r\n\r\n'
                  b'GET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n')
        raw = read_all(s)
    a, b, c, rest = raw.split(b'\r\n\r\n')
    assert rest == b'' and b'Content-Length: 5' in a
    assert b'ength' not in b and b'ength' not in c and b'chunked' not in b + c


def test_http_1_0_clients(gateway, upstream):
    request = b'POST /o HTTP/1.0\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n\r\nx=1'
    first, again = gateway.raw(request), gateway.raw(request)
    assert statuses(first + again) == [201, 201] and b'chunked' not in first + again
    with connect(gateway) as s:
        s.sendall(b'GET /o HTTP/1.0\r\nConnection: keep-alive\r\n\r\n')
        assert b'Connection: keep-alive\r\n' in read_until(s, b'hello')
        upstream.plan.append(up.answers(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
                                        b'2\r\nhi\r\n0\r\n\r\n'))
        s.sendall(b'GET /o HTTP/1.0\r\nConnection: keep-alive\r\n\r\n')
        raw = read_all(s)  # its end is the connection's
    assert raw.endswith(b'\r\n\r\nhi') and b'chunked' not in raw


def test_large_keyed_bodies_reach_a_slow_upstream_whole(start_gateway, upstream):
    def reads_slowly(u, conn, _):
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        u.release.wait(20)
        request = u.read(conn)
        u.requests.append(request)
        conn.sendall(u.execute(request))
    reads_slowly.before_reading = True
    gateway = start_gateway()
    upstream.plan.append(reads_slowly)
    body = os.urandom(10 * 1024 * 1024)
    call = gateway.background('k', body=body)
    wait_until(lambda: upstream.struck == 1)
    wait_until(lambda: gateway.metric('semel_gateway_buffered_bytes') > len(body))
    assert gateway.metric('semel_gateway_buffered_bytes') < len(body) + 1024 * 1024
    upstream.release.set()
    assert call.result(30).status == 201 and upstream.requests[0].body == body
    assert upstream.effects['k'] == 1


# -- sockets of other kinds -----------------------------------------------------------------------

def post_unix(path, key):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(str(path))
        s.sendall(b'POST /o HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n'
                  b'Idempotency-Key: %s\r\n\r\n' % key)
        return read_all(s)


def relay_unix(path, port):
    """A unix socket in front of the upstream's port."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(16)

    def copy(a, b):
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept():
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(('127.0.0.1', port))
            for pair in ((conn, far), (far, conn)):
                threading.Thread(target=copy, args=pair, daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener


def test_unix_sockets_on_both_sides(procs, build, sqlite_url, upstream, tmp):
    far = relay_unix(tmp / 'up.sock', upstream.port)
    front = tmp / 'gw.sock'
    argv = [build.semel, 'gateway', '--listen', f'unix:{front}', '--upstream',
            f'unix:{tmp}/up.sock', '--db', sqlite_url]
    gateway = procs.start(argv)
    gateway.wait_log('listening on unix:')
    assert statuses(post_unix(front, b'k')) == [201]
    # a second one does not take a socket that is in use
    second = procs.run(argv)
    assert second.returncode == 64 and 'cannot listen on' in second.err()
    gateway.kill()
    assert front.is_socket(), 'a killed gateway leaves its socket'
    gateway = procs.start(argv)
    gateway.wait_log('listening on unix:')
    assert b'Idempotent-Replayed' in post_unix(front, b'k') and upstream.total() == 1
    assert gateway.terminate() == 0 and not front.exists()
    # what is no socket is not removed
    front.write_text('precious')
    assert procs.run(argv).returncode == 64 and front.read_text() == 'precious'
    far.close()


def test_ipv6_on_both_sides(procs, build, sqlite_url):
    u = Upstream(host='::1')
    try:
        gateway = procs.start([build.semel, 'gateway', '--listen', '[::1]:0', '--upstream',
                               f'http://[::1]:{u.port}', '--db', sqlite_url])
        port = int(gateway.wait_log(r'listening on \[::1\]:(\d+)').group(1))
        with socket.create_connection(('::1', port), timeout=10) as s:
            s.sendall(HEAD + b'Content-Length: 0\r\nConnection: close\r\n\r\n')
            assert statuses(read_all(s)) == [201]
        low = {k.lower(): v for k, v in u.requests[0].headers}
        assert low['x-forwarded-for'] == '::1' and low['forwarded'].startswith('for="[::1]"')
    finally:
        u.close()


def test_a_name_is_resolved_without_blocking(start_gateway, upstream):
    gateway = start_gateway(url=f'http://localhost:{upstream.port}')
    assert gateway.post('k').status == 201
    unknown = start_gateway(url='http://no-such-name.invalid')
    reply = unknown.post('k2')
    assert reply.status == 502 and reply.header('Idempotency-Outcome') == 'not-executed'

# SPDX-License-Identifier: Apache-2.0
"""Real, unmodified clients: each sends a POST through a connection that is cut after the upstream did
the work, and sends it again.  One effect, and the reply that the first one should have brought.

A runtime that is missing is an error: tools/packages.txt names them all."""
import pathlib
import shutil
import socket
import threading

import pytest

from support.gateway import Gateway
from support.upstream import Upstream
from support.wait import wait_until

CLIENTS = pathlib.Path(__file__).parent / 'clients'
BODY = 'item=1&amount=200'


class CuttingProxy:
    """Passes bytes on.  The reply to the first POST is thrown away and its connection cut."""

    def __init__(self, port):
        self.port = port
        self.cuts = 0
        self.posts = 0
        self.lost = b''
        self.listener = socket.socket()
        self.listener.bind(('127.0.0.1', 0))
        self.listener.listen(16)
        self.url = f'http://127.0.0.1:{self.listener.getsockname()[1]}/orders'
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(('127.0.0.1', self.port))
            for a, b, see in ((near, far, self.saw_request), (far, near, self.saw_reply)):
                threading.Thread(target=self.copy, args=(a, b, see), daemon=True).start()

    def saw_request(self, piece):
        self.posts += piece.startswith(b'POST ')
        return True

    def saw_reply(self, piece):
        if self.posts != 1 or self.cuts:
            return True
        self.lost = piece
        self.cuts += 1
        return False

    def copy(self, a, b, see):
        try:
            while piece := a.recv(65536):
                if not see(piece):
                    break
                b.sendall(piece)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def program(name):
    found = shutil.which(name)
    assert found, f'{name} is not installed: tools/setup test'
    return found


def curl(url, key):
    return [program('curl'), '-sS', '--retry', '3', '--retry-all-errors', '--retry-delay', '1',
            '-w', '%{stderr}%{http_code} %header{Idempotent-Replayed}', '-H', f'Idempotency-Key: {key}',
            '-d', BODY, url]


COMMANDS = {
    'requests': lambda url, key: ['/usr/bin/python3', CLIENTS / 'retry_requests.py', url, key, BODY],
    'node': lambda url, key: [program('node'), CLIENTS / 'retry.mjs', url, key, BODY],
    'go': lambda url, key: [program('go'), 'run', CLIENTS / 'retry.go', url, key, BODY],
    'java': lambda url, key: [program('java'), CLIENTS / 'Retry.java', url, key, BODY],
}


@pytest.fixture
def world(procs, build, sqlite_url):
    upstream = Upstream()
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url)
    proxy = CuttingProxy(gateway.port)
    yield upstream, gateway, proxy
    proxy.listener.close()
    upstream.close()


def check(upstream, gateway, proxy, reply):
    assert proxy.cuts == 1 and proxy.posts == 2, 'nothing was cut, or nothing sent again'
    assert proxy.lost.endswith(reply), 'not the reply that was lost'
    assert b'HTTP/1.1 201 ' in proxy.lost and reply.startswith(b'effect 1 of ')
    assert upstream.effects['order-7'] == 1
    assert sum(r.method == 'POST' for r in upstream.requests) == 1
    wait_until(lambda: gateway.outcome('replayed') == 1)


@pytest.mark.parametrize('client', COMMANDS)
def test_a_client_that_lost_the_reply_gets_it_and_nothing_runs_twice(procs, world, client):
    upstream, gateway, proxy = world
    run = procs.run(COMMANDS[client](proxy.url, 'order-7'), timeout=240,
                    env={'GO111MODULE': 'off', 'CGO_ENABLED': '0', 'GOTOOLCHAIN': 'local'})
    assert run.returncode == 0, run.logs()
    status, replayed, body = run.out().split()
    assert (status, replayed) == ('201', 'true')
    check(upstream, gateway, proxy, bytes.fromhex(body))


def test_curl_that_lost_the_reply_gets_it_and_nothing_runs_twice(procs, world):
    upstream, gateway, proxy = world
    run = procs.run(curl(proxy.url, 'order-7'))
    assert run.returncode == 0 and '201' in run.err(), run.logs()
    check(upstream, gateway, proxy, run.out_bytes())


def test_a_demonstration_that_the_cut_is_what_the_test_says(world):
    """Without the gateway's part in it, the client would have run it twice."""
    upstream, gateway, proxy = world
    direct = CuttingProxy(upstream.port)
    for _ in range(2):
        with socket.create_connection(direct.listener.getsockname(), timeout=10) as s:
            s.sendall(b'POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: order-7\r\n'
                      b'Content-Length: 0\r\nConnection: close\r\n\r\n')
            s.recv(65536)
    wait_until(lambda: upstream.effects['order-7'] == 2)
    direct.listener.close()

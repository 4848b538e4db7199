# SPDX-License-Identifier: Apache-2.0
"""Many clients at once: idle ones, greedy ones, and two users with one key; memory and descriptors
stay where they were.

Without a sanitizer the crowds are as large as they are in the field: 10,000 idle connections,
1,000,000 requests, 10,000 races; with one, a fraction of it."""
import socket
import subprocess
import sys

import pytest

from support.binaries import FULL
from support.gateway import Gateway
from support.upstream import Forever
from support.wait import wait_until
from support.wire import connect, fds, read_all, read_until, sanitized


CROWD = '''
import resource, socket, sys
port, n = int(sys.argv[1]), int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
socks = []
for i in range(n):
    s = socket.socket()
    s.connect(('127.0.0.1', port))
    socks.append(s)
print('connected', flush=True)
sys.stdin.readline()
for s in socks[::97]:
    s.sendall(b'GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n')
    assert s.recv(100).startswith(b'HTTP/1.1 200'), 'an idle connection is dead'
print('served', flush=True)
'''


def test_idle_connections_by_the_thousand(start_gateway, procs):
    """The client is a process of its own; the gateway starts with a low soft limit and raises it."""
    count = 10000 if FULL else 2000
    gateway = start_gateway(prefix=('prlimit', '--nofile=256:15000', '--'))
    rss = gateway.process.rss_kib()
    crowd = procs.start([sys.executable, '-c', CROWD, str(gateway.port), str(count)],
                        stdin=subprocess.PIPE)
    crowd.wait_log('connected', timeout=60)
    wait_until(lambda: gateway.metric('semel_gateway_connections') == count)
    per_connection = (gateway.process.rss_kib() - rss) * 1024 / count
    assert sanitized(gateway) or per_connection < 4096, f'{per_connection:.0f} bytes for an idle connection'
    assert gateway.post('k').status == 201
    crowd.stdin.write(b'go\n')
    crowd.stdin.flush()
    crowd.wait_log('served', timeout=30)
    crowd.kill()
    wait_until(lambda: gateway.metric('semel_gateway_connections') == 0)


def test_more_connections_than_allowed_are_closed_at_once(start_gateway):
    gateway = start_gateway(config='connections_max: 10\n')
    socks = [connect(gateway) for _ in range(10)]
    wait_until(lambda: gateway.metric('semel_gateway_connections') == 10)
    with connect(gateway) as s:
        assert read_all(s) == b''
    socks.pop().close()
    wait_until(lambda: gateway.metric('semel_gateway_connections') == 9)
    assert gateway.post('k').status == 201
    for s in socks:
        s.close()


def test_few_descriptors_are_shared_out_and_do_not_stop_it(start_gateway, upstream):
    gateway = start_gateway(prefix=('prlimit', '--nofile=80:80', '--'))
    gateway.process.wait_log(r'80 descriptors allow \d+ client connections')
    assert gateway.post('k').status == 201
    socks = [connect(gateway) for _ in range(100)]
    admins = [socket.create_connection(('127.0.0.1', gateway.admin)) for _ in range(50)]
    wait_until(lambda: fds(gateway) < 80)
    for s in admins:
        s.close()
    wait_until(lambda: gateway.metric('semel_gateway_connections') > 5)
    for s in socks:
        s.close()
    wait_until(lambda: gateway.metric('semel_gateway_connections') == 0)
    assert gateway.post('k').replayed and gateway.post('k2').status == 201


def test_waiting_for_a_connection_upstream_is_bounded(start_gateway, upstream):
    def waits(u, conn, request):  # and keeps its connection
        reply = u.execute(request)
        u.release.wait(60)
        conn.sendall(reply)
        return True
    gateway = start_gateway(config='upstream_connections_max: 1\nupstream_waiting_max: 2\n')
    upstream.plan += [waits]
    running = gateway.background('k0')
    wait_until(lambda: upstream.effects['k0'] == 1)
    waiting = [gateway.background(f'w{i}') for i in range(2)]
    wait_until(lambda: gateway.metric('semel_gateway_upstream_waiting') == 2)
    for key in ('more', None):
        reply = gateway.post(key)
        assert (reply.status, reply.problem) == (503, 'overloaded')
        assert reply.header('Retry-After') == '1'
    upstream.release.set()
    running.result(20)
    assert [f.result(20).status for f in waiting] == [201, 201]
    assert gateway.post('more').status == 201  # the key was free


def test_h73_slow_upstreams_hold_no_connection_of_the_store(procs, build, pg, pg_db, pg_store_url, upstream):
    def waits(u, conn, request):
        reply = u.execute(request)
        u.release.wait(60)
        conn.sendall(reply)
        return True
    gateway = Gateway(procs, build.semel, upstream.url, pg_store_url)
    upstream.plan += [waits] * 60
    slow = [gateway.background(f's{i}') for i in range(60)]
    wait_until(lambda: upstream.total() == 60, timeout=20)
    busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state <> 'idle' " \
           "AND pid <> pg_backend_pid()"
    wait_until(lambda: pg.value(pg_db, busy, (pg_db,)) == 0, what='no connection in a transaction')
    clients = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    assert pg.value(pg_db, clients, (pg_db,)) <= 6 + 1, 'more than its links, and ours'
    assert gateway.post('quick').status == 201
    upstream.release.set()
    assert [f.result(30).status for f in slow] == [201] * 60


ENDLESS = '''
import socket, sys, threading, time
port, n, seconds, head = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4].encode()
chunk = b'10000\\r\\n' + b'e' * 65536 + b'\\r\\n'
end = time.monotonic() + seconds
def one(i):
    while time.monotonic() < end:
        try:
            with socket.create_connection(('127.0.0.1', port)) as s:
                s.sendall(b'POST /e HTTP/1.1\\r\\nHost: h\\r\\nTransfer-Encoding: chunked\\r\\n'
                          + (head + b'%d\\r\\n' % i if head else b'') + b'\\r\\n')
                while time.monotonic() < end:
                    s.sendall(chunk)
        except OSError:
            threading.Event().wait(0.01)
ts = [threading.Thread(target=one, args=(i,)) for i in range(n)]
[t.start() for t in ts]
print('at it', flush=True)
[t.join() for t in ts]
'''


@pytest.mark.parametrize('key', ['Idempotency-Key: e', ''], ids=['keyed', 'passed'])
def test_a_hundred_endless_bodies_stay_within_the_budget(start_gateway, procs, upstream, key):
    def swallows(u, conn, _):
        u.release.wait(60)
    swallows.before_reading = True
    if not key:
        upstream.plan += [swallows] * 1000
    budget = 64
    gateway = start_gateway('--upstream-timeout', '1s', config=f'buffered_bytes_max: {budget}MiB\n')
    if key:
        gateway.post('warm')
    rss, before = gateway.process.rss_kib(), fds(gateway)
    attack = procs.start([sys.executable, '-c', ENDLESS, str(gateway.port), '100', '3', key])
    attack.wait_log('at it')
    highest = 0
    served = 0
    while attack.alive():
        highest = max(highest, gateway.process.rss_kib())
        if key:
            reply = gateway.post(f'other-{served}')
            assert reply.status in (201, 503), reply
        else:
            reply = gateway.get_admin('/healthz')
        served += 1
    assert served > 2
    if not sanitized(gateway):
        assert highest - rss < (budget + 48) * 1024, f'{(highest - rss) / 1024:.0f} MiB more'
    wait_until(lambda: gateway.metric('semel_gateway_buffered_bytes') == 0, timeout=20)
    upstream.release.set()
    wait_until(lambda: fds(gateway) <= before + 5)
    del upstream.plan[:]
    assert gateway.post('after').status == 201


LOAD = '''
import socket, sys
port, n, first, distinct = (int(x) for x in sys.argv[1:5])
s = socket.create_connection(('127.0.0.1', port))
left = n
buf = b''
i = 0
while left:
    batch = min(64, left)
    s.sendall(b''.join(b'POST /o HTTP/1.1\\r\\nHost: h\\r\\nIdempotency-Key: l%d\\r\\nContent-Length: 3'
                       b'\\r\\n\\r\\nx=1' % (first + (i + j) % distinct) for j in range(batch)))
    got = 0
    while got < batch:
        buf += s.recv(262144)
        got += buf.count(b'HTTP/1.1 201')
        buf = buf[-11:] if b'HTTP/1.1 201' not in buf[-11:] else b''
    left -= batch
    i += batch
'''


def test_memory_is_flat_over_many_requests(start_gateway, procs):
    """Replays of 500 keys, by 2 connections; the heap is warm after the first round."""
    rounds, each = (10, 100000) if FULL else (3, 10000)
    gateway = start_gateway('--log', 'none')

    def load(first):
        ps = [procs.start([sys.executable, '-c', LOAD, str(gateway.port), str(each // 2),
                           str(first), '250']) for first in (first, first + 250)]
        assert [p.wait(300) for p in ps] == [0, 0], [p.logs() for p in ps]
        return gateway.process.rss_kib()
    warm, open_fds = load(0), fds(gateway)
    after = [load(0) for _ in range(rounds)]
    assert sanitized(gateway) or after[-1] < warm * 1.10 + 512, (warm, after)
    assert fds(gateway) <= open_fds + 2
    assert gateway.outcome('replayed') >= rounds * each


def test_h38_ten_thousand_races_of_two_users_with_one_key(start_gateway, upstream, procs):
    """Both send at the same moment; each must get the reply to its own request, always."""
    rounds = 10000 if FULL else 400
    gateway = start_gateway('--log', 'json')

    def mirrors(u, conn, request):
        body = request.body
        conn.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
        return True
    upstream.plan = Forever(mirrors)
    users = [b'ann-secret', b'bob-secret']
    socks = [connect(gateway) for _ in users]
    for i in range(rounds):
        for s, user in zip(socks, users):
            s.sendall(b'POST /o HTTP/1.1\r\nHost: h\r\nIdempotency-Key: secret-r%d\r\n'
                      b'Authorization: Bearer %s\r\nContent-Length: 12\r\n\r\n%s-%d' % (i, user, user, i % 10))
        for s, user, other in zip(socks, users, reversed(users)):
            raw = read_until(s, b'secret-%d' % (i % 10))
            assert user in raw and other not in raw, raw
    wait_until(lambda: gateway.outcome('ran') == 2 * rounds)
    dropped = gateway.metric('semel_gateway_log_dropped_total')
    assert gateway.process.terminate() == 0  # the log is written to its end
    lines = gateway.process.out().splitlines()
    assert len(lines) + dropped == 2 * rounds and all('"outcome":"ran"' in x for x in lines)
    assert len(lines) > rounds
    assert not [x for x in gateway.process.logs().splitlines() if 'secret' in x][:3]


def test_h76_hundreds_wait_for_one_key_and_all_get_its_reply(start_gateway, upstream):
    def waits(u, conn, request):
        reply = u.execute(request)
        u.release.wait(60)
        conn.sendall(reply)
        return True
    gateway = start_gateway()
    upstream.plan += [waits, waits]
    running = [gateway.background(k) for k in ('k', 'j')]
    wait_until(lambda: upstream.total() == 2)
    socks = [connect(gateway) for _ in range(300)]
    for i, s in enumerate(socks):
        s.sendall(b'POST /orders HTTP/1.1\r\nHost: shop.test\r\nPrefer: wait=30\r\nContent-Length: 3\r\n'
                  b'Idempotency-Key: %s\r\n\r\nx=1' % (b'k' if i % 3 else b'j'))
    wait_until(lambda: gateway.metric('semel_gateway_waiters') == 300)
    for s in socks[:50]:
        s.close()
    wait_until(lambda: gateway.metric('semel_gateway_waiters') == 250)
    upstream.release.set()
    assert [f.result(20).status for f in running] == [201, 201]
    for i, s in list(enumerate(socks))[50:]:
        assert b'effect 1 of ' + (b'k' if i % 3 else b'j') in read_until(s, b'\xff')
    wait_until(lambda: gateway.metric('semel_gateway_waiters') == 0)
    assert upstream.total() == 2

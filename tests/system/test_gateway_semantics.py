# SPDX-License-Identifier: Apache-2.0
"""What the gateway promises to clients: outcomes, replays, keys, principals, fingerprints."""
import contextlib
import gzip
import json
import socket

import pytest

from support import upstream as up
from support.gateway import Gateway
from support.sqlite import refused
from support.wait import wait_until


@pytest.fixture
def start(procs, build, upstream, tmp):
    def go(url, *options, config=None):
        if config is not None:
            (tmp / 'gateway.yaml').write_text(config)
            options += ('--config', str(tmp / 'gateway.yaml'))
        return Gateway(procs, build.semel, upstream.url, url, *options)
    return go


@pytest.fixture
def gateway(start, sqlite_url):
    return start(sqlite_url)


def slow(seconds_event):
    """Executes, and answers when it is let."""
    def behave(u, conn, request):
        reply = u.execute(request)
        seconds_event.wait(30)
        conn.sendall(reply)
        return True
    return behave


def test_h1_five_parallel_posts_run_once(start, store_url, upstream):
    gateway = start(store_url)
    upstream.plan.append(slow(upstream.release))
    running = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    others = gateway.post_parallel(4, 'k')
    assert [r.status for r in others] == [409] * 4
    for r in others:
        assert r.problem == 'in-flight' and r.json['retryable'] is True
        assert 1 <= int(r.header('Retry-After')) <= 60
        assert r.header('Idempotency-Outcome') == 'unknown'
    upstream.release.set()
    assert running.result(20).status == 201
    again = gateway.post('k')
    assert again.status == 201 and again.replayed and again.body == running.result().body
    assert upstream.effects['k'] == 1


def test_h76_prefer_wait_gets_the_winners_reply(start, store_url, upstream):
    gateway = start(store_url)
    upstream.plan.append(slow(upstream.release))
    running = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    waiting = [gateway.background('k', headers=[('Prefer', 'respond-async, wait=20')])
               for _ in range(4)]
    wait_until(lambda: gateway.metric('semel_gateway_waiters') == 4)
    upstream.release.set()
    replies = [f.result(20) for f in [running, *waiting]]
    assert [r.status for r in replies] == [201] * 5
    assert len({r.body for r in replies}) == 1
    assert upstream.effects['k'] == 1


def test_h76_waiting_across_two_gateways(start, pg_store_url, upstream, procs, build):
    one = start(pg_store_url)
    two = Gateway(procs, build.semel, upstream.url, pg_store_url)
    upstream.plan.append(slow(upstream.release))
    running = one.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    waiting = two.background('k', headers=[('Prefer', 'wait=20')])
    wait_until(lambda: two.metric('semel_gateway_waiters') == 1)
    upstream.release.set()
    assert running.result(20).body == waiting.result(20).body
    assert waiting.result().replayed and upstream.effects['k'] == 1


def test_h21_h22_h23_h26_replay_byte_for_byte(gateway, upstream):
    request = (b'POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n'
               b'Connection: close\r\n\r\nx=1')
    first = gateway.raw(request)
    again = gateway.raw(request)
    assert first.startswith(b'HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\n'
                            b'Link: <a>; rel=x\r\nLink: <b>\r\nX-Empty: \r\nX-Latin: caf\xe9\r\n')
    assert b'Set-Cookie: secret=1\r\n' in first
    # H23: what speaks to one caller is not replayed; H28: a replay says that it is one
    assert again == first.replace(b'Set-Cookie: secret=1\r\n', b'Idempotent-Replayed: true\r\n')
    assert again.endswith(b'effect 1 of k\0\xff')


def test_h28_a_page_may_see_that_it_is_a_replay(gateway, upstream):
    upstream.plan.append(up.answers(b'HTTP/1.1 201 Created\r\nAccess-Control-Allow-Origin: *\r\n'
                                    b'Access-Control-Expose-Headers: X-Own\r\nContent-Length: 0\r\n\r\n'))
    first, again = gateway.post('k'), gateway.post('k')
    exposed = [[v for n, v in r.headers if n.lower() == 'access-control-expose-headers']
               for r in (first, again)]
    assert exposed == [['X-Own'], ['X-Own', 'Idempotent-Replayed']] and again.replayed


@pytest.mark.parametrize('raw', [
    b'HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n',
    b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
    b'HTTP/1.1 200 Fine, thank you\r\nContent-Length: 2\r\n\r\nok',
    b'HTTP/1.1 303 See Other\r\nLocation: /orders/1\r\nContent-Length: 0\r\n\r\n',
    b'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n',
    b'HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nno\n',
], ids=['204', '304', 'reason', '303', 'gzip-chunked', '500'])
def test_h21_h29_replies_of_every_kind_are_replayed(gateway, upstream, raw):
    if raw.endswith(b'chunked\r\n\r\n'):
        body = gzip.compress(b'hello' * 50)
        raw += b'%x\r\n%s\r\n0\r\n\r\n' % (len(body), body)
    upstream.plan.append(up.answers(raw, executes=True))
    request = (b'POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n'
               b'Connection: close\r\n\r\nx=1')
    first = gateway.raw(request)
    again = gateway.raw(request)
    assert first.split(b'\r\n')[0] == raw.split(b'\r\n')[0]
    assert again.replace(b'Idempotent-Replayed: true\r\n', b'') == first and again != first
    assert upstream.effects['k'] == 1


def test_h58_h60_another_request_under_the_key(gateway, upstream):
    upstream.plan.append(slow(upstream.release))
    running = gateway.background('k')
    wait_until(lambda: upstream.effects['k'] == 1)
    reply = gateway.post('k', body=b'x=2')  # 422 wins over 409
    assert (reply.status, reply.problem) == (422, 'key-reused')
    assert 'POST /orders' in reply.json['detail'] and 'x=1' not in reply.body.decode()
    upstream.release.set()
    running.result(20)
    assert gateway.post('k', body=b'x=2').problem == 'key-reused'
    assert gateway.post('k', path='/orders/1/cancel').problem == 'key-reused'  # H40
    assert gateway.post('other-key').status == 201                            # H61
    assert upstream.total() == 2


def test_h38_two_users_never_share_a_key(gateway, upstream):
    replies = {}
    for user in ('ann', 'bob', None):
        headers = [('Authorization', f'Bearer {user}')] if user else []
        replies[user] = gateway.post('k', headers=headers, body=f'user={user}'.encode())
        assert replies[user].status == 201 and not replies[user].replayed
    for user in ('ann', 'bob', None):
        headers = [('Authorization', f'Bearer {user}')] if user else []
        again = gateway.post('k', headers=headers, body=f'user={user}'.encode())
        assert again.replayed and again.body == replies[user].body
    assert len({r.body for r in replies.values()}) == 3
    log = gateway.process.out()
    assert 'ann' not in log and 'bob' not in log and 'user=' not in log


def test_h45_keys_are_logged_as_digests(gateway, upstream):
    gateway.post('a-very-secret-key')
    wait_until(lambda: ' ran ' in gateway.process.out())
    assert 'a-very-secret-key' not in gateway.process.out() + gateway.process.err()


@pytest.mark.parametrize('key, status', [
    ('k', 201), ('"k"', 201), ('"k";p=1', 201), (' k ', 201), ('a, b', 400), ('a;b', 400), ('', 400),
    ('"', 400), ('"a', 400), ('k' * 255, 201), ('k' * 256, 400), ('caf\xe9', 400), ('a b', 400),
    ('"a b"', 201), ('a\\b', 400),
])
def test_h46_h48_h50_key_syntax(gateway, key, status):
    reply = gateway.post(key.encode('latin-1'))
    assert reply.status == status, reply
    if status == 400:
        assert reply.problem == 'key-malformed'


def test_h50_quoted_and_bare_are_one_key(gateway, upstream):
    assert gateway.post('k').status == 201
    assert gateway.post('"k"').replayed
    assert upstream.total() == 1


@pytest.mark.parametrize('fields, status', [
    (b'Idempotency-Key: k\r\nIdempotency-Key: "k"\r\n', 201),
    (b'Idempotency-Key: k\r\nIdempotency-Key: j\r\n', 400),
    (b'Idempotency-Key: k\r\nConnection: Idempotency-Key\r\n', 400),
])
def test_two_key_fields_and_a_key_named_in_connection(gateway, fields, status):
    with socket.create_connection(('127.0.0.1', gateway.port), timeout=10) as s:
        s.sendall(b'POST /o HTTP/1.1\r\nHost: h\r\n' + fields + b'Content-Length: 0\r\n\r\n')
        raw = s.recv(65536)
    assert raw.startswith(b'HTTP/1.1 %d ' % status), raw


@pytest.mark.parametrize('method', ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])
def test_h51_h52_other_methods_pass_with_their_key(gateway, upstream, method):
    body = b'x' if method == 'PUT' else None
    for _ in range(2):
        gateway.request(method, '/orders', body=body, key='k')
    assert len(upstream.requests) == 2
    low = {k.lower(): v for k, v in upstream.requests[0].headers}
    assert low['idempotency-key'] == 'k' and 'idempotency-fence' not in low


def test_without_a_key_nothing_is_claimed(gateway, upstream):
    assert [gateway.post(None).status for _ in range(3)] == [201] * 3
    wait_until(lambda: gateway.outcome('passed') == 3)
    assert upstream.total() == 3


def test_what_the_upstream_gets(gateway, upstream):
    gateway.post('k', headers=[('Connection', 'X-Hop'), ('X-Hop', '1'), ('TE', 'trailers'),
                               ('X-Forwarded-For', '10.0.0.1'), ('Idempotency-Fence', '999'),
                               ('traceparent', '00-aa-bb-01'), ('Via', '1.0 older')])
    low = {k.lower(): v for k, v in upstream.requests[0].headers}
    assert low['semel-key'] == 'k' and 'idempotency-key' not in low
    assert int(low['idempotency-fence']) > 10**15  # the store's clock in microseconds
    assert low['x-forwarded-for'] == '10.0.0.1, 127.0.0.1'
    assert low['via'] == '1.0 older, 1.1 semel' and low['traceparent'] == '00-aa-bb-01'
    assert low['host'] == 'shop.test' == low['x-forwarded-host']
    assert not {'x-hop', 'te', 'connection'} & set(low)


def test_h31_a_reply_too_large_to_keep_is_streamed_and_never_runs_twice(start, sqlite_url, upstream):
    gateway = start(sqlite_url)
    big = b'b' * (3 * 1024 * 1024)
    upstream.plan.append(up.answers(b'HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s'
                                    % (len(big), big), executes=True))
    assert gateway.post('k').body == big
    again = gateway.post('k')
    assert (again.status, again.problem) == (409, 'reply-not-kept')
    assert again.json['original_status'] == 201 and again.json['retryable'] is False
    # in chunks, so that its size is known late
    upstream.plan.append(up.answers(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' +
                                    b'100000\r\n' + b'c' * 0x100000 + b'\r\n' +
                                    b'100000\r\n' + b'd' * 0x100000 + b'\r\n0\r\n\r\n', executes=True))
    assert gateway.post('j').body == b'c' * 0x100000 + b'd' * 0x100000
    assert gateway.post('j').problem == 'reply-not-kept'
    assert upstream.effects == {'k': 1, 'j': 1}


def test_h24_h37_a_stream_of_events_flows_and_is_not_stored_as_empty(gateway, upstream):
    def events(u, conn, request):
        u.execute(request)
        conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n')
        u.release.wait(30)
        conn.sendall(b'data: 2\n\n')
        return False
    upstream.plan.append(events)
    with socket.create_connection(('127.0.0.1', gateway.port), timeout=10) as s:
        s.sendall(b'POST /e HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n')
        got = b''
        while b'data: 1' not in got:
            got += s.recv(65536)
        assert b'data: 2' not in got
        upstream.release.set()
        while b'0\r\n\r\n' not in got:
            got += s.recv(65536)
    assert b'data: 2' in got
    assert gateway.post('k', path='/e', body=b'').problem == 'reply-not-kept'


def test_h43_no_store_keeps_no_body(gateway, upstream):
    upstream.plan.append(up.answers(b'HTTP/1.1 200 OK\r\nCache-Control: private, no-store\r\n'
                                    b'Content-Length: 6\r\n\r\nsecret', executes=True))
    assert gateway.post('k').body == b'secret'
    again = gateway.post('k')
    assert again.problem == 'reply-not-kept' and b'secret' not in again.body


CONFIG = '''
policy:
  wait_max: 1s
routes:
  - name: strict
    path: /strict/**
    missing_key: reject
    anonymous: reject
  - name: json
    path: /json
    fingerprint: json
  - name: parts
    path: /parts
    fingerprint: multipart
  - name: puts
    path: /puts/*
    methods: [PUT]
    claim_methods: [PUT]
  - name: secrets
    path: /secrets
    store_body: false
  - name: cautious
    path: /cautious
    refused: none
'''


def test_h41_routes_have_their_own_policies(start, sqlite_url, upstream):
    gateway = start(sqlite_url, config=CONFIG)
    assert gateway.post(None, path='/strict/a').problem == 'key-missing'
    assert gateway.post('k', path='/strict/a').problem == 'key-missing'  # anonymous (H41)
    ann = [('Authorization', 'Bearer ann')]
    assert gateway.post('k', path='/strict/a', headers=ann).status == 201
    for _ in range(2):
        r = gateway.request('PUT', '/puts/1', b'x', 'put')
    assert r.replayed
    assert gateway.post('s', path='/secrets').status == 201
    assert gateway.post('s', path='/secrets').problem == 'reply-not-kept'
    upstream.plan.append(up.answers(b'HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n'))
    assert gateway.post('c', path='/cautious').status == 429
    assert gateway.post('c', path='/cautious').replayed


def test_h54_h57_json_and_multipart_are_compared_by_what_they_mean(start, sqlite_url, upstream):
    gateway = start(sqlite_url, config=CONFIG)
    js = [('Content-Type', 'application/json')]
    assert gateway.post('j', b'{"a": 1, "b": [1.0, 2]}', '/json', js).status == 201
    assert gateway.post('j', b'{"b":[1,2],"a":1}', '/json', js).replayed
    assert gateway.post('j', b'{"b":[2,1],"a":1}', '/json', js).problem == 'key-reused'

    def form(boundary, text):
        body = (f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\n'
                f'Content-Type: text/plain\r\n\r\n{text}\r\n--{boundary}--\r\n').encode()
        return dict(body=body, path='/parts',
                    headers=[('Content-Type', f'multipart/form-data; boundary={boundary}')])
    assert gateway.post('p', **form('aaaa', 'x')).status == 201
    assert gateway.post('p', **form('bbbb', 'x')).replayed
    assert gateway.post('p', **form('cccc', 'y')).problem == 'key-reused'


def test_h32_a_body_over_the_limit_claims_nothing(start, sqlite_url, upstream):
    gateway = start(sqlite_url, config='policy:\n  request_body_max: 64KiB\n')
    reply = gateway.post('k', b'x' * 65537)
    assert (reply.status, reply.problem) == (413, 'body-too-large')
    raw = gateway.raw(b'POST /o HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: k\r\n'
                      b'Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n' +
                      (b'4000\r\n' + b'x' * 0x4000 + b'\r\n') * 5 + b'0\r\n\r\n')
    assert raw.startswith(b'HTTP/1.1 413 ')
    assert upstream.total() == 0
    assert gateway.post('k', b'x' * 65536).status == 201  # the key is free, the limit allowed


def test_h70_store_down_closed_and_open(procs, build, pg_own, semel, upstream, tmp):
    db = pg_own.new_database()
    assert semel('migrate', '--db', pg_own.url(db)).returncode == 0
    (tmp / 'g.yaml').write_text('routes:\n  - path: /open\n    store_down: open\n')
    gateway = Gateway(procs, build.semel, upstream.url, pg_own.url(db), '--config', str(tmp / 'g.yaml'))
    assert gateway.post('k').status == 201
    pg_own.stop('immediate')
    down = gateway.post('j')
    assert (down.status, down.problem) == (503, 'store-down')
    assert down.header('Retry-After') == '1' and upstream.effects['j'] == 0
    opened = gateway.post('i', path='/open')
    assert opened.status == 201 and gateway.metric('semel_gateway_failed_open_total') == 1
    pg_own.start()
    assert wait_until(lambda: (r := gateway.post('j')).status == 201 and r)
    assert gateway.post('k').replayed


def test_h70_what_passed_unprotected_does_not_claim_when_it_is_sent_again(start_gateway, upstream, sqlite_url):
    """An upstream that dedupes still runs it, and the store is back before it is asked again."""
    upstream.dedupes = True
    gateway = start_gateway('--idempotent', config='policy: {store_down: open}\n')
    with contextlib.ExitStack() as down:
        def still_running(u, conn, request):
            down.close()
            wait_until(lambda: gateway.post('other').replayed, what='the gateway to have its store again')
            return up.says_running_once(u, conn, request)
        upstream.plan.append(still_running)
        down.enter_context(refused(sqlite_url, 'INSERT'))
        first = gateway.post('k')
    assert first.status == 201 and upstream.struck == 1
    assert gateway.metric('semel_gateway_failed_open_total') == 1
    again = gateway.post('k')  # nobody holds the key
    assert (again.status, again.replayed, again.body) == (201, False, first.body)
    assert gateway.post('k').replayed and upstream.effects['k'] == 1


def test_config_check_names_line_and_column(semel, tmp):
    (tmp / 'bad.yaml').write_text('listen: ":80"\nupstrem: http://x\npolicy:\n  lease: 30\n'
                                  'routes:\n  - path: /a\n    on_unknown: sometimes\n')
    r = semel('config', 'check', str(tmp / 'bad.yaml'))
    assert r.returncode == 64
    err = r.err()
    assert 'bad.yaml:2:1: there is no setting "upstrem"; did you mean "upstream"?' in err
    assert 'bad.yaml:4:10: lease must be 1ms to 24h, not "30"' in err
    assert 'bad.yaml:7:17: on_unknown must be hold or retry, not "sometimes"' in err
    (tmp / 'good.yaml').write_text(semel('config', 'reference').out().replace('#upstream: ""',
                                                                             'upstream: http://a:1'))
    assert semel('config', 'check', str(tmp / 'good.yaml')).returncode == 0


def test_admin_listener(procs, build, sqlite_url, upstream, tmp, semel):
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url)
    assert gateway.get_admin('/healthz')[0] == 200 and gateway.get_admin('/readyz')[0] == 200
    assert gateway.get_admin('/other')[0] == 404
    refused = semel('gateway', '--upstream', upstream.url, '--listen', '127.0.0.1:0', '--db', sqlite_url,
                    '--admin', '0.0.0.0:0')
    assert refused.returncode == 64 and '--admin-token-file' in refused.err()
    token = tmp / 'token'
    token.write_text('0123456789abcdef\n')
    token.chmod(0o600)
    guarded = Gateway(procs, build.semel, upstream.url, f'sqlite:{tmp}/2.db', '--admin-token-file',
                      str(token))
    assert guarded.get_admin('/metrics')[0] == 401
    assert guarded.get_admin('/metrics', {'Authorization': 'Bearer 0123456789abcdef'})[0] == 200
    assert guarded.get_admin('/healthz')[0] == 200


def test_access_log_is_json_when_asked(start, sqlite_url):
    gateway = start(sqlite_url, '--log', 'json')
    gateway.post('k')
    line = json.loads(wait_until(lambda: gateway.process.out().splitlines())[0])
    assert line['outcome'] == 'ran' and line['status'] == 201 and len(line['key']) == 16

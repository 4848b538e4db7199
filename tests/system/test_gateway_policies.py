# SPDX-License-Identifier: Apache-2.0
"""Settings of the gateway, each through a running one: what a retry hears with it, and without it; where
a setting may come from."""
import os
import signal

import pytest

from ports import free_port

from support import Store
from support import upstream as up
from support.gateway import Gateway
from support.wait import wait_until


def says(status, *fields, body=b'no'):
    lines = b''.join(b'%s\r\n' % f for f in fields)
    return up.answers(b'HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s' % (status, lines, len(body), body),
                      executes=True)


def heard(reply):
    return reply.problem_or_none() or ('replayed' if reply.replayed else 'ran')


def by(user, token='t'):
    return {'headers': [('X-User', user), ('Authorization', f'Bearer {token}')]}


ROUTES = '''
policy:
  principal_header: X-User
routes:
  - {path: /trusted, trust_503: true}
  - {path: /retried, on_unknown: retry}
  - {path: /header, principal: header}
  - {path: /one-scope, principal: none}
  - {path: /any-host, fingerprint_host: false}
  - {path: /any-query, fingerprint_query: false}
'''

# A route with one setting; what the upstream says to the first request; the first request, its retry;
# what the retry hears there, and on a route without the setting.
EACH = [
    ('/trusted', b'503 Busy', {}, {}, 'ran', 'outcome-unknown'),
    ('/retried', b'502 Bad', {}, {}, 'ran', 'outcome-unknown'),
    ('/header', None, by('ann', 'one'), by('ann', 'two'), 'replayed', 'ran'),
    ('/header', None, by('ann'), by('bob'), 'ran', 'replayed'),
    ('/one-scope', None, by('ann', 'one'), by('bob', 'two'), 'replayed', 'ran'),
    ('/any-host', None, {}, {'host': 'other.test'}, 'replayed', 'key-reused'),
    ('/any-query', None, {'query': '?a=1'}, {'query': '?a=2'}, 'replayed', 'key-reused'),
]


def retry(gateway, upstream, key, path, status, first, second):
    if status:
        upstream.plan.append(says(status))

    def post(query='', **kw):
        return gateway.post(key, path=path + query, **kw)
    assert heard(post(**first)) == 'ran'
    return heard(post(**second))


def test_each_setting_of_a_route_changes_what_a_retry_hears(start_gateway, upstream):
    gateway = start_gateway(config=ROUTES)
    for i, (path, *case, there, elsewhere) in enumerate(EACH):
        assert retry(gateway, upstream, f'there-{i}', path, *case) == there, path
        assert retry(gateway, upstream, f'elsewhere-{i}', '/orders', *case) == elsewhere, path
    assert upstream.struck == 4 and not upstream.plan


@pytest.mark.parametrize('status, outcome, then', [
    (b'503 Busy', b'executed', 'replayed'),
    (b'201 Created', b'not-executed', 'ran'),
    (b'201 Created', b'unknown', 'outcome-unknown'),
    (b'429 Slow', b'maybe', 'ran'),  # no word of ours: the status decides
])
def test_the_upstream_says_what_became_of_it(gateway, upstream, status, outcome, then):
    upstream.plan.append(says(status, b'Idempotency-Outcome: ' + outcome))
    first, second = gateway.post('k'), gateway.post('k')
    assert first.status == int(status[:3]) and first.body == b'no'
    assert first.header('Idempotency-Outcome') is None
    assert first.header('Semel-Warning') == ('outcome-unknown' if outcome == b'unknown' else None)
    assert heard(second) == then
    if then == 'replayed':
        assert (second.status, second.header('Idempotency-Outcome')) == (first.status, None)
    assert upstream.effects['k'] == (2 if then == 'ran' else 1)


def test_a_reply_that_leaves_its_key_unknown_carries_a_warning(start_gateway, upstream):
    """Whole, and as a stream, whose head is sent before its body has come."""
    gateway = start_gateway(config='policy:\n  reply_body_max: 4B\n')
    for key, body in ('whole', b'no'), ('stream', b'a large no'):
        upstream.plan.append(says(b'503 Busy', body=body))
        reply = gateway.post(key)
        assert (reply.status, reply.body) == (503, body)
        assert reply.header('Semel-Warning') == 'outcome-unknown', key
        assert gateway.post(key).problem == 'outcome-unknown' and upstream.effects[key] == 1


def fences(upstream):
    return [int(v) for r in upstream.requests for n, v in r.headers if n == 'Idempotency-Fence']


def test_on_unknown_retry_takes_over_with_a_higher_fence(start_gateway, upstream):
    gateway = start_gateway('--on-unknown', 'retry')
    upstream.plan += [up.closes(executes=True)] * 2
    assert [gateway.post('k').status for _ in range(3)] == [502, 502, 201]
    assert upstream.effects['k'] == 3
    one, two, three = fences(upstream)
    assert one < two < three


def test_a1_a_reply_after_the_takeover_is_told_and_not_kept(procs, build, pg, pg_db, pg_store_url, upstream, tmp):
    """The first gateway's connections to the store stand still, and it gets no new one, from before its
    reply until another gateway has taken the key over and finished."""
    (tmp / 'first').symlink_to(build.semel)  # connections are named after their program
    options = ['--on-unknown', 'retry', '--lease', '1500ms', '--upstream-timeout', '700ms']
    one, two = (Gateway(procs, program, upstream.url, pg_store_url, *options)
                for program in (tmp / 'first', build.semel))
    assert [g.post(key).status for g, key in ((one, 'i'), (two, 'j'))] == [201, 201]
    links = [pid for pid, in pg.sql(pg_db, "SELECT pid FROM pg_stat_activity "
                                           "WHERE application_name = 'semel/first'")]

    def stands_still(u, conn, request):
        for pid in (pg.popen.pid, *links):
            os.kill(pid, signal.SIGSTOP)
        conn.sendall(u.execute(request))
        return True
    upstream.plan.append(stands_still)
    try:
        late = one.background('k')
        wait_until(lambda: upstream.effects['k'] == 1)
        taken = wait_until(lambda: (r := two.post('k')).status == 201 and r)
        assert links and not late.done(), 'it gave up before the takeover'
    finally:
        for pid in (pg.popen.pid, *links):
            os.kill(pid, signal.SIGCONT)
    first = late.result(20)
    assert (first.status, first.header('Semel-Warning')) == (201, 'claim-lost')
    assert first.body.startswith(b'effect 1 of k') and taken.body.startswith(b'effect 2 of k')
    assert one.metric('semel_gateway_lost_fences_total') == 1
    again = one.post('k')
    assert again.replayed and again.body == taken.body
    *_, before, after = fences(upstream)
    assert before < after


def test_h44_fingerprints_are_keyed_by_the_secret_file(start_gateway, upstream, tmp):
    def start(secret):
        (tmp / 'secret').write_text(secret + '\n')
        (tmp / 'secret').chmod(0o600)
        return start_gateway(config=f'fingerprint_secret_file: {tmp}/secret\n')
    gateway = start('first secret of 16 bytes and more')
    assert gateway.post('k').status == 201 and gateway.post('k').replayed
    assert gateway.process.terminate() == 0
    gateway = start('first secret of 16 bytes and more')
    assert gateway.post('k').replayed
    assert gateway.process.terminate() == 0
    reply = start('other secret of 16 bytes and more').post('k')
    assert (reply.status, reply.problem) == (422, 'key-reused') and upstream.effects['k'] == 1


def test_store_key_digest_keeps_no_text_of_the_key(start_gateway, upstream, build, sqlite_url, tmp):
    gateway = start_gateway(config='routes:\n  - {path: /digest, store_key: digest}\n')
    upstream.plan = up.Forever(says(b'201 Created'))
    assert gateway.post('a-shown-key').status == 201
    assert gateway.post('a-hidden-key', path='/digest').status == 201
    assert gateway.post('a-hidden-key', path='/digest').replayed
    rows = {row['operation']: row['key'] for row in Store(build, sqlite_url).rows()}
    assert rows == {'POST /orders': 'a-shown-key', 'POST /digest': ''}
    assert gateway.process.terminate() == 0
    kept = b''.join(f.read_bytes() for f in tmp.glob('semel.db*'))
    assert b'a-shown-key' in kept and b'a-hidden-key' not in kept


def test_a_patch_is_claimed(gateway, upstream):
    first, again = (gateway.request('PATCH', '/orders/1', b'x=1', 'k') for _ in range(2))
    assert (first.status, first.replayed) == (201, False)
    assert again.replayed and again.body == first.body and upstream.effects['k'] == 1


def test_more_waiters_than_allowed_get_their_409_at_once(start_gateway, upstream):
    gateway = start_gateway(config='waiters_max: 1\n')
    upstream.plan.append(up.when(upstream.release, up.answers(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')))
    waits = [('Prefer', 'wait=30')]
    running = gateway.background('k')
    assert upstream.reached.wait(20)
    waiting = gateway.background('k', headers=waits)
    wait_until(lambda: gateway.metric('semel_gateway_waiters') == 1)
    more = gateway.post('k', headers=waits)
    assert (more.status, more.problem) == (409, 'in-flight') and not waiting.done()
    upstream.release.set()
    assert running.result(20).status == 200 and waiting.result(20).replayed


@pytest.fixture
def in_front(procs, build, tmp):
    """A gateway in front of another, which it takes for an upstream that dedupes; its store is its own."""
    return lambda inner: Gateway(procs, build.semel, f'http://127.0.0.1:{inner.port}', f'sqlite:{tmp}/outer.db',
                                 '--idempotent')


def test_two_gateways_one_behind_the_other(start_gateway, in_front, upstream):
    inner = start_gateway()
    outer = in_front(inner)
    first, again = outer.post('k'), outer.post('k')
    assert first.status == 201 and again.replayed and again.body == first.body
    assert inner.outcome('ran') == 1 and inner.outcome('replayed') == 0
    # It runs behind: "unknown" to the one in front, which asks again at the next retry.
    upstream.plan.append(up.when(upstream.release, says(b'201 Created')))
    running = inner.background('j')
    assert upstream.reached.wait(20)
    assert outer.post('j').problem == 'in-flight'
    upstream.release.set()
    assert running.result(20).status == 201
    late = outer.post('j')
    assert (late.status, late.body, upstream.effects['j']) == (201, b'no', 1)
    # Nobody knows behind: nothing is sent again, however often the one in front asks.
    upstream.plan.append(up.closes(executes=True))
    assert [outer.post('i').problem for _ in range(3)] == ['upstream-unknown'] + ['outcome-unknown'] * 2
    assert upstream.effects == {'k': 1, 'j': 1, 'i': 1}


def test_what_was_not_executed_behind_frees_the_key_in_both(start_gateway, in_front):
    outer = in_front(start_gateway(url=f'http://127.0.0.1:{free_port()}'))
    for body in b'one', b'another':  # a key that is held would be a mismatch
        assert outer.post('k', body).problem == 'upstream-unreachable'
    wait_until(lambda: outer.outcome('refused') == 2)


# -- where a setting comes from ----------------------------------------------------------------------

@pytest.fixture
def both_settings(start_gateway, upstream):
    """What the gateway does about one setting of its own (log) and one of every route's policy
    (on_unknown), on a route that has it in the file and on one that has not."""
    config = 'log: text\npolicy: {on_unknown: hold}\nroutes:\n  - {path: /named, on_unknown: hold}\n'

    def ask(*options):
        gateway = start_gateway(*options, config=config)
        retries = [retry(gateway, upstream, f'k{len(upstream.requests)}', path, b'502 Bad', {}, {})
                   for path in ('/named', '/other')]
        assert gateway.process.terminate() == 0
        line = gateway.process.out()[:1]
        return 'json' if line == '{' else 'text' if line else 'none', *retries
    return ask


def test_file_then_environment_then_options(both_settings, upstream, monkeypatch):
    assert both_settings() == ('text', 'outcome-unknown', 'outcome-unknown')
    for name, value in ('LOG', 'json'), ('ON_UNKNOWN', 'retry'), ('UPSTREAM', upstream.url):
        monkeypatch.setenv('SEMEL_' + name, value)
    assert both_settings() == ('json', 'ran', 'ran')
    assert both_settings('--log', 'none', '--on-unknown', 'hold') == ('none', *['outcome-unknown'] * 2)


@pytest.mark.parametrize('name, wanted', [
    ('SEMEL_WORKERS', '1 to 64'), ('SEMEL_LEASE', '1ms to 24h'), ('SEMEL_ON_UNKNOWN', 'hold or retry'),
    ('SEMEL_FINGERPRINT_HOST', 'true or false'), ('SEMEL_CLAIM_METHODS', 'POST, PATCH, PUT'),
])
def test_a_variable_that_makes_no_sense_stops_the_start(semel, sqlite_url, name, wanted):
    r = semel('gateway', '--upstream', 'http://127.0.0.1:1', '--listen', '127.0.0.1:0', '--db', sqlite_url,
              env={name: 'banana'}, timeout=20)
    assert r.returncode == 64
    assert f'{name} must be ' in r.err() and wanted in r.err() and '"banana"' in r.err()

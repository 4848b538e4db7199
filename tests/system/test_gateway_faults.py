# SPDX-License-Identifier: Apache-2.0
"""The fault matrix of the gateway: for each thing that can go wrong with the upstream, how often the
effect happened, what the first caller heard, and what the next retry hears.

Each cell asserts that its fault struck unfinished work.  Under hold the effect happens at most
once; with an upstream that dedupes it happens exactly once, when the client has retried."""
import contextlib
import http.client
import socket
import threading

import pytest

from ports import free_port
from support import upstream as up
from support.gateway import Gateway
from support.sqlite import locked, refused
from support.upstream import REPLY, Upstream
from support.wait import answered, wait_until

GARBAGE = b'\x00\x01 this is no HTTP \r\n\r\n'
TWO_LENGTHS = (b'HTTP/1.1 201 Created\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy')
BOTH = (b'HTTP/1.1 201 Created\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n')
FLOOD = b'HTTP/1.1 102 Processing\r\n\r\n' * 1000
TRUNCATED = b'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nonly this'
HUGE_HEAD = b'HTTP/1.1 201 Created\r\nX-Long: ' + b'a' * 100000 + b'\r\n\r\n'

# More than the socket buffers hold at once: a reset in the middle strikes a request that is being sent.
BODY = b'x' * 9_000_000
SMALL = b'x=1'
# A claim that came back with less of its lease than the upstream may take is given up: a busy machine has 2 s for
# it, and as long for the end of a server while the upstream answers.
ROOM = ('--lease', '4s', '--upstream-timeout', '2s')
# The same for who waits until the lease is over, and asks again.
SHORT = ('--lease', '2500ms', '--upstream-timeout', '1500ms')
NOT_YET = ('in-flight', 'store-down')  # what is told of a lease that lasts, and of a claim that was given up

# name: behaviour, executed by then, first status, first problem, retry status under hold
CELLS = {
    'resets before it reads the request': (up.resets_after_request(0), False, 502, 'upstream-unknown', 409),
    'resets after one byte of the request': (up.resets_after_request(1), False, 502, 'upstream-unknown',
                                             409),
    'resets in the middle of the request': (up.resets_after_request(0.5), False, 502, 'upstream-unknown',
                                            409),
    'resets after the request\'s head': (up.resets_in_the_body, False, 502, 'upstream-unknown', 409),
    'resets after all, not executed': (up.resets_after(0, False), False, 502, 'upstream-unknown', 409),
    'resets after all, executed': (up.resets_after(0, True), True, 502, 'upstream-unknown', 409),
    'resets after one byte of the reply': (up.resets_after(1, True), True, 502, 'upstream-unknown', 409),
    'resets after the reply\'s head': (up.resets_after(REPLY.index(b'%d'), True), True, 502,
                                       'upstream-unknown', 409),
    'resets in the reply\'s body': (up.resets_after(-3, True), True, 502, 'upstream-unknown', 409),
    'closes without an answer': (up.closes(True), True, 502, 'upstream-unknown', 409),
    'answers garbage': (up.answers(GARBAGE, True), True, 502, 'upstream-unknown', 409),
    'answers two lengths': (up.answers(TWO_LENGTHS, True), True, 502, 'upstream-unknown', 409),
    'answers a length and chunks': (up.answers(BOTH, True), True, 502, 'upstream-unknown', 409),
    'answers a flood of 1xx': (up.answers(FLOOD, True), True, 502, 'upstream-unknown', 409),
    'answers an oversized head': (up.answers(HUGE_HEAD, True), True, 502, 'upstream-unknown', 409),
    'hangs, executed': (up.hangs(True), True, 504, 'upstream-timeout', 409),
    'hangs, not executed': (up.hangs(False), False, 504, 'upstream-timeout', 409),
    'says 503': (up.answers(b'HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n', True), True, 503, None, 409),
    'says 429': (up.answers(b'HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n'), False, 429, None, 201),
    'says 401': (up.answers(b'HTTP/1.1 401 Who\r\nContent-Length: 0\r\n\r\n'), False, 401, None, 201),
    'says 400': (up.answers(b'HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno', True), True, 400, None,
                 400),
    'says 500': (up.answers(b'HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno', True), True, 500, None,
                 500),
}


IN_THE_REQUEST = {cell for cell in CELLS if 'the request' in cell}


def time_for(cell):
    """Only who hangs is not waited for: all others answer in time on a loaded machine too."""
    return ('--upstream-timeout', '1s') if cell.startswith('hangs') else ()


def hung(upstream, executed, key='k'):
    """One who hangs may read the request when nobody waits for it any more."""
    wait_until(lambda: upstream.struck == 1, what='the fault to strike')
    wait_until(lambda: upstream.effects[key] == (1 if executed else 0), what='the effect, or none')


def truncated(upstream, conn, request):
    upstream.execute(request)
    conn.sendall(TRUNCATED)
    return False


CELLS['answers half a reply'] = (truncated, True, 502, 'upstream-unknown', 409)


@pytest.fixture
def start(procs, build):
    ups = []

    def go(dedupes, url, *options):
        upstream = Upstream(dedupes)
        ups.append(upstream)
        extra = ['--idempotent'] if dedupes else []
        return upstream, Gateway(procs, build.semel, upstream.url, url, '--upstream-timeout', '20s',
                                 *extra, *options)
    yield go
    for upstream in ups:
        upstream.close()


def sent(gateway, upstream, key='k', **kw):
    """Ask until the upstream has the request, since a claim that came too late is given up; the call."""
    calls = []

    def asked():
        over = not calls or calls[-1].done()
        if upstream.effects[key] == 1:
            return calls[-1]
        if over:
            assert not calls or calls[-1].result().problem == 'store-down'
            calls.append(gateway.background(key, **kw))
        return None
    return answered(asked, timeout=30, what='the request to be sent')


@pytest.mark.parametrize('cell', CELLS, ids=lambda c: c.replace(' ', '-'))
def test_h62_h63_h65_fault_under_hold(start, sqlite_url, cell):
    behave, executed, status, problem, retry_status = CELLS[cell]
    upstream, gateway = start(False, sqlite_url, *time_for(cell))
    upstream.plan.append(behave)
    body = BODY if cell in IN_THE_REQUEST else SMALL
    first = gateway.post('k', body)
    if cell.startswith('hangs'):
        hung(upstream, executed)
    assert upstream.struck == 1, 'the fault did not strike'
    assert first.status == status, first
    if problem:
        assert first.problem == problem
    assert upstream.effects['k'] == (1 if executed else 0)
    second = gateway.post('k', body)
    assert second.status == retry_status, second
    if retry_status == 409:
        assert second.problem == 'outcome-unknown'
        assert len(upstream.requests) <= 1, 'it was sent again'
    assert upstream.effects['k'] <= 1
    gateway.wait_quiet()
    assert gateway.process.alive()


@pytest.mark.parametrize('cell', [c for c in CELLS if CELLS[c][4] == 409],
                         ids=lambda c: c.replace(' ', '-'))
def test_h62_fault_with_an_upstream_that_dedupes(start, sqlite_url, cell):
    behave, executed, status, problem, _ = CELLS[cell]
    upstream, gateway = start(True, sqlite_url, *time_for(cell))
    upstream.plan.append(behave)
    body = BODY if cell in IN_THE_REQUEST else SMALL
    first = gateway.post('k', body)
    if cell.startswith('hangs'):
        hung(upstream, executed)
    assert upstream.struck == 1, 'the fault did not strike'
    assert first.status == status, first
    upstream.release.set()
    second = gateway.post('k', body)
    assert second.status == 201, second
    assert upstream.effects['k'] == 1
    third = gateway.post('k', body)
    assert third.replayed and third.kept() == (second.status, [
        h for h in second.kept()[1] if h[0] != 'Set-Cookie'], second.body)


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
@pytest.mark.parametrize('cell', CELLS, ids=lambda c: c.replace(' ', '-'))
def test_h68_the_client_leaves_and_then_the_fault_comes(start, sqlite_url, cell, dedupes):
    """Nobody hears the first answer; the record is the same as if somebody had."""
    behave, executed, _, _, retry_status = CELLS[cell]
    upstream, gateway = start(dedupes, sqlite_url, *time_for(cell))
    left = threading.Event()
    upstream.plan.append(up.when(left, behave))
    with gateway.leaving('k', SMALL):
        assert upstream.reached.wait(20)
        assert gateway.metric('semel_gateway_requests') == 1, 'nothing was under way'
    left.set()
    gateway.wait_quiet()
    if cell.startswith('hangs'):
        hung(upstream, executed)
    assert upstream.struck == 1, 'the fault did not strike'
    assert upstream.effects['k'] == (1 if executed else 0)
    upstream.release.set()
    second = gateway.post('k', SMALL)
    if dedupes and retry_status == 409:
        assert second.status == 201 and upstream.effects['k'] == 1
    else:
        assert second.status == retry_status, second
        assert upstream.effects['k'] <= 1


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h68_a_client_that_leaves_while_its_claim_waits(start, sqlite_url, dedupes):
    """The store is locked by somebody else; the claim lands when nobody waits for it any more."""
    upstream, gateway = start(dedupes, sqlite_url)
    assert gateway.post('other').status == 201
    with locked(sqlite_url):
        with gateway.leaving('k', SMALL):
            wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 1, what='the claim to wait')
        wait_until(lambda: gateway.outcome('gone') + gateway.metric('semel_gateway_store_queue') >= 1)
    gateway.wait_quiet()
    assert upstream.effects['k'] == 0, 'sent for nobody'
    again = gateway.post('k', SMALL)
    assert again.status == 201 and upstream.effects['k'] == 1


LARGE = up.answers(b'HTTP/1.1 201 Created\r\nContent-Length: 100000\r\n\r\n' + b'l' * 100000, executes=True)


@pytest.mark.parametrize('how', ['closes', 'half closes'])
def test_h68_a_client_that_leaves_while_its_claim_waits_for_a_kept_reply(start, sqlite_url, how):
    """Nobody is left to take the reply, which is too large to be answered from memory: the request ends."""
    upstream, gateway = start(False, sqlite_url)
    upstream.plan.append(LARGE)
    assert gateway.post('k', SMALL).status == 201
    with locked(sqlite_url), gateway.leaving('k', SMALL) as client:
        wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 1, what='the claim to wait')
        if how == 'closes':
            client.close()
        else:
            client.shutdown(socket.SHUT_WR)
        wait_until(lambda: gateway.metric('semel_gateway_connections') == 0, what='the client to be missed')
    gateway.wait_quiet()
    assert gateway.outcome('replayed') == 1, 'the claim did not land'
    assert gateway.metric('semel_gateway_buffered_bytes') == 0
    assert gateway.process.terminate(10) == 0


def test_h68_a_client_that_leaves_while_its_claim_waits_is_no_waiter(start, sqlite_url):
    """It would have waited for the one that runs, whose claim went to the store just before its own."""
    upstream, gateway = start(False, sqlite_url)
    upstream.plan.append(up.hangs(True))
    with locked(sqlite_url):
        first = gateway.background('k', SMALL)
        wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 1, what='the first claim to wait')
        with gateway.leaving('k', SMALL, b'Prefer: wait=30\r\n'):
            wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 2, what='the second one to wait')
        wait_until(lambda: gateway.metric('semel_gateway_connections') == 1, what='the client to be missed')
    wait_until(lambda: gateway.metric('semel_gateway_requests') == 1, what='who left to be over')
    assert gateway.outcome('in_flight') == 1 and gateway.metric('semel_gateway_waiters') == 0
    assert upstream.effects['k'] == 1 and not first.done()
    upstream.release.set()
    assert first.result(20).status == 201
    gateway.wait_quiet()
    assert gateway.process.terminate(10) == 0


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h62_the_store_is_down_before_the_claim(procs, build, pg_own, semel, dedupes):
    """Fail closed: nothing is sent, and all works again when the store is back."""
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0
    upstream = Upstream(dedupes)
    gateway = Gateway(procs, build.semel, upstream.url, url, *(['--idempotent'] if dedupes else []))
    assert gateway.post('other').status == 201
    pg_own.stop('immediate')
    first = gateway.post('k')
    assert (first.status, first.problem) == (503, 'store-down')
    assert int(first.header('Retry-After')) >= 1
    assert upstream.effects['k'] == 0
    pg_own.start()
    again = wait_until(lambda: (r := gateway.post('k')).status == 201 and r, timeout=15)
    assert again.body.startswith(b'effect 1 of k') and upstream.effects['k'] == 1
    upstream.close()


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h62_the_store_goes_down_at_the_completion(procs, build, pg_own, semel, dedupes):
    """The completion is on its way: a lock holds its UPDATE while the server is ended."""
    name = pg_own.new_database()
    url = pg_own.url(name)
    assert semel('migrate', '--db', url).returncode == 0
    upstream = Upstream(dedupes)
    gateway = Gateway(procs, build.semel, upstream.url, url, *ROOM, *(['--idempotent'] if dedupes else []))
    holder = pg_own.connect(name, autocommit=False)

    def holds_the_row(u, conn, request):
        holder.cursor().execute('SELECT 1 FROM semel.command FOR UPDATE')
        conn.sendall(u.execute(request))
        return True
    upstream.plan.append(holds_the_row)
    call = sent(gateway, upstream)
    watch = pg_own.connect(name, autocommit=True).cursor()

    def waits():
        watch.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return watch.fetchone()[0] >= 1
    wait_until(waits, what='the completion to wait for the lock')
    pg_own.stop('immediate')
    first = call.result(60)
    assert upstream.struck == 1 and first.status == 201
    assert first.header('Semel-Warning') == 'reply-not-recorded'
    pg_own.start()
    again = wait_until(lambda: (r := gateway.post('k')).status in (201, 409) and (
        r.status == 201 or r.problem != 'in-flight') and r, timeout=15)
    assert (again.status, again.problem if again.status == 409 else None) == (
        (201, None) if dedupes else (409, 'outcome-unknown'))
    assert upstream.effects['k'] == 1
    upstream.close()


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h63_refused_connections_free_the_key(procs, build, sqlite_url, dedupes):
    port = free_port()
    gateway = Gateway(procs, build.semel, f'http://127.0.0.1:{port}', sqlite_url,
                      *(['--idempotent'] if dedupes else []))
    first = gateway.post('k')
    assert (first.status, first.problem) == (502, 'upstream-unreachable')
    assert first.header('Idempotency-Outcome') == 'not-executed'
    assert first.header('Retry-After') == '1'
    second = gateway.post('k', body=b'another request')  # the key is free: no mismatch
    assert second.problem == 'upstream-unreachable'
    upstream = Upstream(dedupes, port=port)
    third = gateway.post('k', body=b'a third request')
    assert third.status == 201 and not third.replayed and upstream.effects['k'] == 1
    upstream.close()


def test_h63_a_reset_before_a_byte_was_read_is_judged_by_what_was_sent(start, sqlite_url):
    """The reset may come before or after our first byte: both are told as what they are."""
    upstream, gateway = start(False, sqlite_url)
    upstream.plan.append(up.resets_before_reading)
    first = gateway.post('k')
    assert upstream.struck == 1 and first.status == 502
    second = gateway.post('k')
    if first.problem == 'upstream-unreachable':
        assert second.status == 201 and upstream.effects['k'] == 1
    else:
        assert (first.problem, second.problem) == ('upstream-unknown', 'outcome-unknown')
        assert upstream.effects['k'] == 0


def test_h63_a_kept_connection_that_died_is_not_used(start, sqlite_url):
    upstream, gateway = start(False, sqlite_url)
    assert gateway.post('k1').status == 201
    for conn in upstream.connections:
        conn.shutdown(socket.SHUT_RDWR)
    assert gateway.post('k2').status == 201
    assert upstream.total() == 2


def test_an_unsolicited_408_on_an_idle_connection_answers_nobody(start, sqlite_url):
    upstream, gateway = start(False, sqlite_url)
    assert gateway.post('k1').status == 201
    upstream.connections[-1].sendall(b'HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n')
    second = gateway.post('k2')
    assert (second.status, upstream.effects['k2']) == (201, 1)


def test_a_409_of_an_upstream_that_dedupes_means_still_running(start, sqlite_url):
    upstream, gateway = start(True, sqlite_url, '--upstream-timeout', '5s')
    upstream.plan += [up.says_running_once, up.says_running_once]
    reply = gateway.post('k')
    assert reply.status == 201 and upstream.effects['k'] == 1
    assert len(upstream.requests) == 3
    assert {upstream.key(r) for r in upstream.requests} == {'k'}


def test_h68_a_client_that_leaves_does_not_stop_the_record(start, sqlite_url):
    upstream, gateway = start(False, sqlite_url, '--upstream-timeout', '20s')
    upstream.plan.append(up.hangs(True))
    with gateway.leaving('k'):
        wait_until(lambda: upstream.effects['k'] == 1)
    upstream.release.set()
    gateway.wait_quiet()
    raw = gateway.raw(b'POST /orders HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n'
                      b'Connection: close\r\n\r\nx=1')
    assert raw.startswith(b'HTTP/1.1 201 Created\r\n') and b'Idempotent-Replayed: true' in raw
    assert upstream.effects['k'] == 1


def test_a_client_that_leaves_before_the_body_is_whole_claims_nothing(start, sqlite_url):
    upstream, gateway = start(False, sqlite_url)
    with socket.create_connection(('127.0.0.1', gateway.port)) as s:
        s.sendall(b'POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n'
                  b'Content-Length: 300\r\n\r\nx=1')
        wait_until(lambda: gateway.metric('semel_gateway_requests') == 1)
    gateway.wait_quiet()
    assert gateway.outcome('gone') == 1
    assert gateway.post('k').status == 201


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h8_sigkill_of_the_gateway_under_hold_ends_as_unknown(start, sqlite_url, procs, build, semel, dedupes):
    upstream, gateway = start(dedupes, sqlite_url, *SHORT)
    upstream.plan.append(up.hangs(True))
    call = sent(gateway, upstream)
    gateway.process.kill()
    with pytest.raises(Exception):
        call.result(10)
    again = Gateway(procs, build.semel, upstream.url, sqlite_url, *SHORT, *(['--idempotent'] if dedupes else []))
    if dedupes:
        reply = wait_until(lambda: (r := again.post('k')).status == 201 and r, timeout=20)
        assert reply.body.startswith(b'effect 1 of k') and upstream.effects['k'] == 1
        return
    reply = wait_until(lambda: (r := again.post('k')).problem not in NOT_YET and r, timeout=20)
    assert (reply.status, reply.problem) == (409, 'outcome-unknown')
    assert upstream.effects['k'] == 1
    listed = semel('keys', 'list', '--stuck', '--json', '--db', sqlite_url)
    assert '"UNKNOWN"' in listed.out() and '"k"' in listed.out()


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h9_a_gateway_that_was_stopped_beyond_its_lease_changes_nothing(start, sqlite_url, procs, build,
                                                                        dedupes):
    upstream, gateway = start(dedupes, sqlite_url, *SHORT)
    upstream.plan.append(up.hangs(True))
    call = sent(gateway, upstream)
    gateway.process.stop()
    other = Gateway(procs, build.semel, upstream.url, sqlite_url, *SHORT, *(['--idempotent'] if dedupes else []))
    reply = wait_until(lambda: (r := other.post('k')) and r.problem_or_none() not in NOT_YET and r,
                       timeout=20)
    if dedupes:
        assert reply.status == 201
    else:
        assert (reply.status, reply.problem) == (409, 'outcome-unknown')
    upstream.release.set()
    gateway.process.cont()
    late = call.result(20)
    assert late.status in (201, 502, 504), late
    gateway.wait_quiet()
    again = other.post('k')
    if dedupes:
        assert again.replayed and again.body == reply.body
    elif late.status == 201:  # its upstream answered in time after all: the key has its reply
        assert again.replayed and again.body == late.body
    else:
        assert (again.status, again.problem) == (409, 'outcome-unknown')
    assert upstream.effects['k'] == 1


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h62_the_store_goes_down_between_claim_and_completion(procs, build, pg_own, semel, dedupes):
    """The caller gets its reply, with a warning; the key is never free."""
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0
    upstream = Upstream(dedupes)
    gateway = Gateway(procs, build.semel, upstream.url, url, *ROOM, *(['--idempotent'] if dedupes else []))

    def strikes(u, conn, request):
        reply = u.execute(request)
        pg_own.stop('immediate')
        conn.sendall(reply)
        return True
    upstream.plan.append(strikes)
    first = sent(gateway, upstream).result(60)
    assert upstream.struck == 1 and first.status == 201
    assert first.header('Semel-Warning') == 'reply-not-recorded'
    assert gateway.metric('semel_gateway_unrecorded_total') == 1
    assert gateway.post('k').problem == 'store-down'
    pg_own.start()
    final = 'outcome-unknown' if not dedupes else None
    again = wait_until(lambda: (r := gateway.post('k')).status in (201, 409) and (
        r.status == 201 or r.problem != 'in-flight') and r, timeout=15)
    assert (again.status, again.problem if again.status == 409 else None) == (
        (201, None) if dedupes else (409, final))
    assert upstream.effects['k'] == 1
    upstream.close()


def test_h62_the_store_comes_back_before_the_claim_is_over(procs, build, pg_own, semel):
    """The completion is tried again for as long as the lease lasts."""
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0
    upstream = Upstream()
    gateway = Gateway(procs, build.semel, upstream.url, url)

    def strikes(u, conn, request):
        reply = u.execute(request)
        pg_own.stop('immediate')
        conn.sendall(reply)
        return True
    upstream.plan.append(strikes)
    call = gateway.background('k')
    wait_until(lambda: pg_own.popen.poll() is not None)
    pg_own.start()
    first = call.result(60)
    assert (first.status, first.header('Semel-Warning')) == (201, None)
    assert gateway.post('k').replayed and upstream.effects['k'] == 1
    upstream.close()


def test_h62_the_upstream_resets_while_the_record_of_its_stream_pauses(start, sqlite_url):
    """The head of a stream came, and cannot be recorded now: it is tried again, whatever the upstream does
    meanwhile, and the client does not wait for ever."""
    upstream, gateway = start(False, sqlite_url)
    failed = threading.Event()

    def streams(u, conn, request):
        u.execute(request)
        conn.sendall(b'HTTP/1.1 201 Created\r\nContent-Type: text/event-stream\r\n\r\n')
        assert failed.wait(30)
        up.reset(conn)
        return False
    upstream.plan.append(up.when(upstream.release, streams))
    call = gateway.background('k')
    assert upstream.reached.wait(20)
    with refused(sqlite_url, 'UPDATE'):
        with locked(sqlite_url):
            upstream.release.set()
            wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 1, what='the record')
        wait_until(lambda: gateway.metric('semel_gateway_store_queue') == 0, what='the record to fail')
        failed.set()
        wait_until(lambda: upstream.connections[0].fileno() == -1, what='the reset')
        assert gateway.request('GET', '/').status == 200 and not call.done()  # its loop has turned
    with pytest.raises((http.client.HTTPException, ConnectionError)):  # it is cut
        call.result(20)
    again = gateway.post('k')
    assert (again.status, again.problem) == (409, 'reply-not-kept') and upstream.effects['k'] == 1


@pytest.mark.parametrize('dedupes', [False, True], ids=['hold', 'dedupes'])
def test_h62_a_disk_that_is_full(procs, build, sqlite_url, dedupes):
    """Files may grow to 1 MiB only: some claims fail, and some completions."""
    upstream = Upstream(dedupes)
    extra = ['--idempotent'] if dedupes else []
    limit = ('sh', '-c', 'trap "" XFSZ; ulimit -f 1024; exec "$@"', 'sh')
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url, *SHORT, *extra, prefix=limit)
    big = b'HTTP/1.1 201 Created\r\nContent-Length: 50000\r\n\r\n' + b'd' * 50000
    heard = []
    for i in range(60):
        upstream.plan[:] = [up.answers(big, executes=True)]
        r = gateway.post(f'k{i}', timeout=60)
        heard.append((r.status, r.header('Semel-Warning')))
        if [h for h in heard if h != (201, None)][1:]:
            break
    failed = [h for h in heard if h != (201, None)]
    assert failed, 'the disk was large enough'
    assert set(failed) <= {(503, None), (201, 'reply-not-recorded')}, set(failed)
    del upstream.plan[:]
    for i, h in enumerate(heard):
        if h == (201, None):
            assert gateway.post(f'k{i}').body == b'd' * 50000
        assert upstream.effects[f'k{i}'] <= 1
    assert gateway.process.alive()
    gateway.process.kill()
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url, *SHORT, *extra)  # there is room again
    for i, (status, _) in enumerate(heard):
        if heard[i] == (201, None):
            continue
        again = wait_until(lambda i=i: (r := gateway.post(f'k{i}')) and
                           r.problem_or_none() not in NOT_YET and r, timeout=20)
        if dedupes or status == 503:
            assert again.status == 201, again
        else:
            assert (again.status, again.problem) == (409, 'outcome-unknown')
        assert upstream.effects[f'k{i}'] == 1
    upstream.close()


@pytest.mark.parametrize('moment', ['upstream works', 'reply comes', 'reply is cut'])
def test_h68_a_client_that_leaves_at_each_moment(start, sqlite_url, moment):
    upstream, gateway = start(False, sqlite_url, '--upstream-timeout', '2s')

    def stages(u, conn, request):
        reply = u.execute(request)
        half = len(reply) // 2
        if moment != 'upstream works':
            conn.sendall(reply[:half])
            reply = reply[half:]
        u.release.wait(10)
        if moment != 'reply is cut':
            conn.sendall(reply)
        return False
    upstream.plan.append(stages)
    with gateway.leaving('k'):
        wait_until(lambda: upstream.effects['k'] == 1)
    upstream.release.set()
    gateway.wait_quiet()
    again = gateway.post('k')
    if moment == 'reply is cut':
        assert again.problem == 'outcome-unknown'
    else:
        assert again.replayed and again.body.startswith(b'effect 1 of k')
    assert upstream.effects['k'] == 1 and upstream.struck == 1


# What is not the upstream's: effects, first answer, retry under hold, retry where it dedupes; and the
# test that shows it.
OTHERS = {
    'the upstream refuses the connection': (
        '0', '502 `upstream-unreachable`', '201, runs', '201, runs',
        test_h63_refused_connections_free_the_key),
    'the client leaves, then any of the above': (
        'as above', '-', 'as above', 'as above', test_h68_the_client_leaves_and_then_the_fault_comes),
    'the client leaves while its claim waits': (
        '0', '-', '201, runs', '201, runs', test_h68_a_client_that_leaves_while_its_claim_waits),
    'the gateway is killed while the upstream works': (
        '1', '-', '409 `outcome-unknown`', '201, runs again: 1 effect',
        test_h8_sigkill_of_the_gateway_under_hold_ends_as_unknown),
    'the gateway is stopped beyond its lease, and woken': (
        '1', 'as the upstream says', '409 `outcome-unknown`', '201, runs again: 1 effect',
        test_h9_a_gateway_that_was_stopped_beyond_its_lease_changes_nothing),
    'the store is down before the claim': (
        '0', '503 `store-down`', '201, runs', '201, runs',
        test_h62_the_store_is_down_before_the_claim),
    'the store goes down between claim and completion': (
        '1', '201 with `Semel-Warning`', '409 `outcome-unknown`', '201, runs again: 1 effect',
        test_h62_the_store_goes_down_between_claim_and_completion),
    'the store goes down at the completion': (
        '1', '201 with `Semel-Warning`', '409 `outcome-unknown`', '201, runs again: 1 effect',
        test_h62_the_store_goes_down_at_the_completion),
    'the store\'s disk is full': (
        '0 or 1', '503 `store-down`, or 201 with `Semel-Warning`', 'runs, or 409 `outcome-unknown`',
        '201: 1 effect', test_h62_a_disk_that_is_full),
}


def table():
    """The matrix as docs/gateway.md shows it."""
    lines = []
    for cell, (_, executed, status, problem, retry) in CELLS.items():
        again = {409: '409 `outcome-unknown`', 201: '201, runs'}.get(retry, f'{retry}, replayed')
        dedupes = '201, runs again: 1 effect' if retry == 409 else '-'
        lines.append(f'| {cell} | {int(executed)} | {status}{f" `{problem}`" if problem else ""} | '
                     f'{again} | {dedupes} |')
    lines += [f'| {cell} | {" | ".join(row[:4])} |' for cell, row in OTHERS.items()]
    return '\n'.join(lines)

# SPDX-License-Identifier: Apache-2.0
"""`semel call` against a provider that misbehaves: one key and the same bytes in each attempt, all
of it within the deadline, and a final class that is true."""
import json
import socket
import ssl
import subprocess
import time

import pytest

from ports import free_port
from support.binaries import FULL
from support.gateway import Gateway
from support.upstream import (Forever, Upstream, answers, closes, hangs, resets_after,
                              resets_before_reading, resets_in_the_body, says_running_once)
from support.wait import wait_until

DONE, USAGE, REJECTED, DOWN, IN_FLIGHT, UNKNOWN = 0, 64, 65, 69, 75, 76
KEY = 'order-7:charge:req-9'
# A deadline of 1 or 2 s, with the start and the end of the process; a sanitizer's takes seconds of its own on
# a busy machine.  Who does not keep it takes 30 s or more.
SOON = 5 if FULL else 20
BODY = b'{"amount": 500, "note": "caf\xc3\xa9"}'


def status(code, *headers, body=b'', executes=False):
    lines = b''.join(h.encode() + b'\r\n' for h in headers)
    return answers(b'HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s' % (code, lines, len(body), body),
                   executes)


@pytest.fixture
def up():
    u = Upstream(dedupes=True, port=free_port())
    yield u
    u.close()


@pytest.fixture
def body_file(tmp):
    path = tmp / 'body.json'
    path.write_bytes(BODY)
    return f'@{path}'


@pytest.fixture
def call(build, procs, body_file):
    """Run `semel call` and return (process, seconds)."""
    def run(url, *args, method='POST', key=KEY, data=None, timeout=60, **kw):
        begun = time.monotonic()
        p = procs.run([build.semel, 'call', method, url, '--key', key, '--data', data or body_file,
                       *args], timeout=timeout, **kw)
        return p, time.monotonic() - begun
    return run


def same_bytes(up, key=KEY, body=BODY):
    """Every attempt carried the same key and the same bytes, on a connection of its own."""
    assert up.requests
    assert {r.raw for r in up.requests} == {up.requests[0].raw}
    assert up.requests[0].body == body
    assert [v for k, v in up.requests[0].headers if k.lower() == 'idempotency-key'] == [key]
    assert len(up.connections) >= len(up.requests)
    return len(up.requests)


def reads_nothing(up, conn, request):
    """Accept, and read nothing until it is over."""
    up.release.wait(60)


reads_nothing.before_reading = True


def stalls_in_the_reply(up, conn, request):
    """The effect, and half of the reply."""
    reply = up.execute(request)
    conn.sendall(reply[:-3])
    up.release.wait(60)
    return False


# -- one fault, then all is well ---------------------------------------------------------------------

ONCE = {
    'reply-lost-after-the-charge': closes(True),
    'reset-after-the-charge': resets_after(0, True),
    'reset-in-the-head': resets_after(20, True),
    'reset-in-the-reply': resets_after(-4, True),
    'reset-before-reading': resets_before_reading,
    'reset-in-the-request': resets_in_the_body,
    'closed-unread': closes(False),
    'no-http': answers(b'SSH-2.0-x\r\n\r\n'),
    'status-500': status(500),
    'status-503-after-the-charge': status(503, executes=True),
    'status-429': status(429),
    'status-408': status(408),
    'in-flight-409': says_running_once,
    'hangs-after-the-charge': hangs(True),
    'hangs-before': hangs(False),
    'stalls-in-the-reply': stalls_in_the_reply,
}


@pytest.mark.parametrize('fault', ONCE)
def test_one_fault_then_done_once_with_the_same_bytes(up, call, fault):
    """Only who is silent is not waited for: all others answer in time on a loaded machine too."""
    up.plan = [ONCE[fault]]
    patience = '1500ms' if fault.startswith(('hangs', 'stalls')) else '20s'
    p, seconds = call(up.url + '/charges', '--attempt-timeout', patience, '--deadline', '30s')
    assert p.returncode == DONE, p.logs()
    assert p.out_bytes() == b'effect 1 of ' + KEY.encode() + b'\0\xff'
    assert up.effects == {KEY: 1}
    assert up.struck == 1
    assert same_bytes(up) in (1, 2)
    assert len(up.connections) == 2
    assert 'attempt 1: ' in p.err() and 'attempt 2: status 201' in p.err()
    assert seconds < 30


def test_h63_no_attempt_is_sent_again_by_what_is_below(up, call):
    up.plan = Forever(closes(False))
    p, _ = call(up.url + '/charges', '--attempts-max', '1')
    assert p.returncode == UNKNOWN
    assert len(up.connections) == len(up.requests) == 1


def test_a_provider_that_restarts_is_asked_again(up, call, procs, build):
    up.plan = [closes(True)]
    p = procs.start([build.semel, 'call', 'POST', up.url + '/c', '--key', KEY, '--data', 'x',
                     '--deadline', '30s'])
    wait_until(lambda: up.requests)
    # shutdown() too: a thread waits in accept()
    up.listener.shutdown(socket.SHUT_RDWR)
    up.listener.close()
    p.wait_log(r'no connection', timeout=20)
    again = Upstream(dedupes=True, port=up.port)
    try:
        again.replies = up.replies
        assert p.wait(30) == DONE, p.logs()
        assert again.total() == 0 and up.total() == 1
        assert {r.raw for r in again.requests} == {up.requests[0].raw}
    finally:
        again.close()


def test_retry_after_is_obeyed(up, call):
    up.plan = [status(429, 'Retry-After: 1')]
    p, seconds = call(up.url + '/charges')
    assert p.returncode == DONE and 1.0 <= seconds < 20, p.logs()
    assert same_bytes(up) == 2


def test_retry_after_as_a_date_is_obeyed_by_the_senders_clock(up, call):
    up.plan = [status(503, 'Date: Sun, 06 Nov 1994 08:49:37 GMT',
                      'Retry-After: Sun, 06 Nov 1994 08:49:38 GMT')]
    p, seconds = call(up.url + '/charges')
    assert p.returncode == DONE and 1.0 <= seconds < 20, p.logs()


def test_retry_after_never_goes_past_the_deadline(up, call):
    up.plan = Forever(status(503, 'Retry-After: 3600'))
    p, seconds = call(up.url + '/charges', '--deadline', '2s')
    assert p.returncode == UNKNOWN and seconds < SOON, p.logs()


# -- phases of an attempt ----------------------------------------------------------------------------

def full_listener():
    """A port where connecting hangs: nobody accepts, and the queue is full."""
    s = socket.socket()
    s.bind(('127.0.0.1', 0))
    s.listen(0)
    fill = []
    for _ in range(3):
        c = socket.socket()
        c.setblocking(False)
        c.connect_ex(s.getsockname())
        fill.append(c)
    return s, fill, s.getsockname()[1]


def test_never_reached_says_that_nothing_happened(call):
    p, seconds = call(f'http://127.0.0.1:{free_port()}/c', '--deadline', '1s')
    assert p.returncode == DOWN and seconds < SOON
    assert 'nothing was sent' in p.err()


def test_a_name_that_nobody_knows(call):
    p, seconds = call('http://no-such-host.invalid/c', '--deadline', '1s')
    assert p.returncode == DOWN and seconds < SOON
    assert 'nothing was sent' in p.err() and 'no-such-host.invalid' in p.err()


def test_connecting_hangs(call):
    s, fill, port = full_listener()
    p, seconds = call(f'http://127.0.0.1:{port}/c', '--deadline', '1s', '--attempt-timeout', '300ms')
    assert p.returncode == DOWN and seconds < SOON
    assert 'while connecting' in p.err() and 'nothing was sent' in p.err()
    for c in [*fill, s]:
        c.close()


def test_tls_hangs(up, call):
    up.plan = Forever(reads_nothing)
    up.plan[0].before_reading = True
    p, seconds = call(up.url.replace('http', 'https') + '/c', '--deadline', '1s',
                      '--attempt-timeout', '300ms')
    assert p.returncode == DOWN and seconds < SOON
    assert 'while connecting' in p.err() and 'nothing was sent' in p.err()


@pytest.mark.preload
def test_a_name_server_that_does_not_answer_is_not_waited_for(call, tmp):
    (tmp / 'slow.c').write_text('#include <unistd.h>\n'
                                'int getaddrinfo(const char *n, const char *s, const void *h, void **r)\n'
                                '{ (void)n; (void)s; (void)h; (void)r; sleep(60); return -3; }\n')
    subprocess.run(['gcc', '-shared', '-fPIC', '-o', tmp / 'slow.so', tmp / 'slow.c'], check=True)
    p, seconds = call('http://slow.invalid/c', '--deadline', '1s', env={'LD_PRELOAD': tmp / 'slow.so'})
    assert p.returncode == DOWN and seconds < SOON
    assert "while the host's name was looked up" in p.err()


PHASES = {
    'sending': (reads_nothing, 16 << 20, 'bytes of the body were sent'),
    'first-byte': (hangs(False), 10, 'before a reply'),
    'in-the-reply': (stalls_in_the_reply, 10, 'in the middle of a 201 reply'),
}


@pytest.mark.parametrize('phase', PHASES)
def test_what_left_is_never_called_failed(up, call, tmp, phase):
    behaviour, size, says = PHASES[phase]
    up.plan = Forever(behaviour)
    (tmp / 'big').write_bytes(b'x' * size)
    p, seconds = call(up.url + '/c', '--deadline', '2s', '--attempt-timeout', '1s',
                      data=f'@{tmp}/big')
    assert p.returncode == UNKNOWN, p.logs()
    assert seconds < SOON
    assert says in p.err() and 'nobody knows whether it happened' in p.err()
    assert 'failed' not in p.err() and p.out() == ''


def test_a_big_body_is_sent_again_whole(up, call, tmp):
    big = bytes(range(256)) * (8 << 12)
    (tmp / 'big').write_bytes(big)
    up.plan = [reads_nothing, closes(True)]
    p, _ = call(up.url + '/c', '--attempt-timeout', '8s', data=f'@{tmp}/big')
    assert p.returncode == DONE, p.logs()
    assert same_bytes(up, body=big) == 2 and up.effects == {KEY: 1}
    assert not [k for k, _ in up.requests[0].headers if k.lower() == 'expect']


# -- the final class ---------------------------------------------------------------------------------

def test_rejected_prints_the_body(up, call):
    up.plan = [status(402, body=b'no money')]
    p, _ = call(up.url + '/c')
    assert p.returncode == REJECTED and p.out() == 'no money'
    assert same_bytes(up) == 1


def test_h60_422_stops_and_shouts(up, call):
    up.plan = [status(422, body=b'{}')]
    p, _ = call(up.url + '/c')
    assert p.returncode == REJECTED and 'THE KEY WAS USED FOR ANOTHER REQUEST' in p.err()
    assert len(up.requests) == 1


def test_h77_waiting_for_a_running_one_ends_at_the_deadline(up, call):
    up.plan = Forever(says_running_once)
    p, seconds = call(up.url + '/c', '--deadline', '1500ms')
    assert p.returncode == UNKNOWN and seconds < SOON
    assert len(up.requests) < 30


def test_h77_waits_count_as_attempts(up, call):
    up.plan = Forever(says_running_once)
    p, _ = call(up.url + '/c', '--attempts-max', '3')
    assert p.returncode == UNKNOWN and len(up.requests) == 3


def test_refused_for_now_until_the_deadline_is_nothing_happened(up, call):
    up.plan = Forever(status(429))
    p, _ = call(up.url + '/c', '--deadline', '1s')
    assert p.returncode == DOWN and 'refused each time' in p.err()


def test_a_redirect_is_not_followed_and_not_done(up, call):
    up.plan = [status(308, f'Location: {up.url}/elsewhere')]
    p, _ = call(up.url + '/c')
    assert p.returncode == REJECTED and [r.path for r in up.requests] == ['/c']


def test_401_says_nothing_about_an_attempt_before(up, call):
    up.plan = [closes(True), status(401)]
    p, _ = call(up.url + '/c')
    assert p.returncode == UNKNOWN, p.logs()
    assert up.effects == {KEY: 1}


def test_the_other_side_says_executed(up, call):
    up.plan = [status(500, 'Idempotency-Outcome: executed', body=b'half')]
    p, _ = call(up.url + '/c')
    assert p.returncode == DONE and p.out() == 'half' and len(up.requests) == 1


def test_interim_replies_are_passed_over(up, call):
    up.plan = [answers(b'HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n'
                       b'HTTP/1.1 201 Created\r\nX-Last: 1\r\nContent-Length: 2\r\n\r\nok')]
    p, _ = call(up.url + '/c', '--include')
    assert p.returncode == DONE
    assert p.out_bytes() == b'HTTP/1.1 201\r\nX-Last: 1\r\nContent-Length: 2\r\n\r\nok'


def test_a_reply_without_end_is_bounded(up, call):
    def endless(up, conn, request):
        conn.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
        while True:
            conn.sendall(b'x' * 65536)
    up.plan = [endless]
    p, _ = call(up.url + '/c', '--json')
    last = json.loads(p.out().splitlines()[-1])
    assert p.returncode == DONE and last['body_kept'] is False and last['body_bytes'] == 0
    assert len(up.requests) == 1


def test_no_proxy_of_the_environment_is_used(up, call):
    env = {'http_proxy': 'http://127.0.0.1:1', 'HTTP_PROXY': 'http://127.0.0.1:1',
           'ALL_PROXY': 'http://127.0.0.1:1', 'no_proxy': ''}
    p, _ = call(up.url + '/c', env=env)
    assert p.returncode == DONE
    p, _ = call(up.url + '/c', '--proxy', 'env', '--deadline', '500ms', env=env)
    assert p.returncode == DOWN


def test_json_output_and_headers(up, call, tmp):
    up.plan = [status(500)]
    p, _ = call(up.url + '/c', '--json', '--header', 'Authorization: Bearer s3cret', '--header',
                'X-Empty:', '--header', 'Content-Type: text/x', '--output', tmp / 'out')
    rows = [json.loads(line) for line in p.out().splitlines()]
    assert p.returncode == DONE
    assert [r['attempt'] for r in rows[:-1]] == [1, 2]
    assert rows[0]['status'] == 500 and rows[0]['wait_ms'] >= 0 and rows[1]['wait_ms'] == -1
    assert rows[-1]['result'] == 'done' and rows[-1]['status'] == 201 and rows[-1]['attempts'] == 2
    assert ['Link', '<a>; rel=x'] in rows[-1]['headers']
    assert (tmp / 'out').read_bytes() == b'effect 1 of ' + KEY.encode() + b'\0\xff'
    sent = dict(up.requests[0].headers)
    assert sent['Authorization'] == 'Bearer s3cret' and sent['X-Empty'] == ''
    assert [v for k, v in up.requests[0].headers if k == 'Content-Type'] == ['text/x']
    assert 's3cret' not in p.logs()


def test_secrets_of_the_url_are_not_shown(call):
    p, _ = call(f'http://user:s3cret@127.0.0.1:{free_port()}/c?token=s3cret', '--deadline', '300ms',
                '--verbose')
    assert p.returncode == DOWN and 's3cret' not in p.logs()


@pytest.mark.parametrize('args', [
    ['POST'], ['POST', 'x', '--key', 'k'], ['POST', 'ftp://x/', '--key', 'k'],
    ['POST', 'http://x/'], ['POST', 'http://x/', '--key', 'a b'], ['P T', 'http://x/', '--key', 'k'],
    ['POST', 'http://x/', '--key', 'k', '--header', 'Idempotency-Key: y'],
    ['POST', 'http://x/', '--key', 'k', '--header', 'no-colon'],
    ['POST', 'http://x/', '--key', 'k', '--data', '@/no/such/file'],
    ['POST', 'http://x/', '--key', 'k', '--cacert', '/no/such/file'],
    ['POST', 'http://x/', '--key', 'k', '--deadline', '5'],
])
def test_a_wrong_command_line_sends_nothing(semel, args):
    p = semel('call', *args)
    assert p.returncode == USAGE and p.err() and p.out() == ''


def test_a_signal_ends_the_call_and_says_what_is_known(up, procs, build):
    up.plan = Forever(hangs(True))
    p = procs.start([build.semel, 'call', 'POST', up.url + '/c', '--key', KEY])
    wait_until(lambda: up.requests)
    assert p.terminate(5) == UNKNOWN
    assert 'nobody knows' in p.err()


# -- with a store ------------------------------------------------------------------------------------

def test_a_finished_call_is_answered_from_the_store(up, call, store):
    p, _ = call(up.url + '/c', '--db', store.url)
    assert p.returncode == DONE, p.logs()
    first = p.out_bytes()
    assert store.row(KEY)['mode'] == 'call' and store.row(KEY)['state'] == 'COMPLETED'
    up.close()
    p, _ = call(up.url + '/c', '--db', store.url, '--json')
    last = json.loads(p.out().splitlines()[-1])
    assert p.returncode == DONE and last['from_store'] is True and last['attempts'] == 0
    assert 'Set-Cookie' not in [k for k, _ in last['headers']]
    p, _ = call(up.url + '/c', '--db', store.url)
    assert p.out_bytes() == first and len(up.requests) == 1


def test_h60_another_request_with_the_key_sends_nothing(up, call, store):
    assert call(up.url + '/c', '--db', store.url)[0].returncode == DONE
    for change in ({'data': 'other'}, {'method': 'PUT'}):
        p, _ = call(up.url + '/c', '--db', store.url, **change)
        assert p.returncode == REJECTED and 'USED FOR ANOTHER REQUEST' in p.err()
    for args in (['/other'], ['/c', '--header', 'Content-Type: text/x']):
        p, _ = call(up.url + args[0], '--db', store.url, *args[1:])
        assert p.returncode == REJECTED, args
    assert len(up.requests) == 1


def test_h60_a_content_type_that_was_added_is_the_one_that_counts(up, call, store):
    def typed(line):
        return call(up.url + '/c', '--db', store.url, '--header', line)[0]
    assert typed('Content-Type: text/x').returncode == DONE
    assert typed('content-type:text/x').returncode == DONE
    p = typed('Content-Type: text/y')
    assert p.returncode == REJECTED and 'USED FOR ANOTHER REQUEST' in p.err()
    assert len(up.requests) == 1


def test_a8_a_call_and_a_run_under_one_key_are_two_commands(up, call, semel, sqlite_url):
    p = semel('run', KEY, '--db', sqlite_url, '--', 'true')
    assert p.returncode == 0
    p, _ = call(up.url + '/c', '--db', sqlite_url)
    assert p.returncode == DONE and len(up.requests) == 1, p.logs()
    for mode in ('run', 'call'):
        p = semel('keys', 'show', KEY, '--mode', mode, '--json', '--db', sqlite_url)
        assert json.loads(p.out())['mode'] == mode


def test_a_rejected_call_is_kept_but_401_is_not(up, call, sqlite_url):
    up.plan = [status(402, body=b'no money')]
    for _ in range(2):
        p, _ = call(up.url + '/c', '--db', sqlite_url)
        assert p.returncode == REJECTED and p.out() == 'no money'
    assert len(up.requests) == 1
    up.plan = [status(401)]
    assert call(up.url + '/c', '--db', sqlite_url, key='k2')[0].returncode == REJECTED
    assert call(up.url + '/c', '--db', sqlite_url, key='k2')[0].returncode == DONE


def test_h1_two_processes_with_one_key_do_not_send_at_the_same_time(up, call, procs, build, store,
                                                                     body_file):
    up.plan = [hangs(True)]
    argv = [build.semel, 'call', 'POST', up.url + '/c', '--key', KEY, '--data', body_file, '--db',
            store.url]
    first = procs.start(argv)
    wait_until(lambda: up.requests)
    second = procs.run(argv)
    assert second.returncode == IN_FLIGHT and 'another process' in second.err(), second.logs()
    assert len(up.requests) == 1
    up.release.set()
    assert first.wait(30) == DONE, first.logs()
    assert procs.run(argv).returncode == DONE
    assert up.effects == {KEY: 1} and len(up.requests) == 1


def test_h8_killed_in_the_middle_the_next_process_goes_on(up, call, procs, build, store, body_file):
    up.plan = [hangs(True)]
    argv = [build.semel, 'call', 'POST', up.url + '/c', '--key', KEY, '--data', body_file, '--db',
            store.url, '--attempt-timeout', '2s']
    first = procs.start(argv)
    wait_until(lambda: up.effects)
    first.kill()
    up.release.set()
    assert procs.run(argv).returncode == IN_FLIGHT
    store.wait_lease_over(KEY)
    again = procs.run(argv)
    assert again.returncode == DONE, again.logs()
    assert again.out_bytes() == b'effect 1 of ' + KEY.encode() + b'\0\xff'
    assert up.effects == {KEY: 1} and same_bytes(up) == 2


def test_unknown_stays_open_to_the_same_call(up, call, store):
    up.plan = [closes(True)]
    p, _ = call(up.url + '/c', '--db', store.url, '--attempts-max', '1')
    assert p.returncode == UNKNOWN
    # from here on the provider is not reached: that says nothing about what came before
    p, _ = call(up.url + '/c', '--db', store.url, '--deadline', '2s', '--proxy',
                f'http://127.0.0.1:{free_port()}')
    assert p.returncode == UNKNOWN, p.logs()
    p, _ = call(up.url + '/c', '--db', store.url)
    assert p.returncode == DONE, p.logs()
    assert up.effects == {KEY: 1} and same_bytes(up) == 2


def test_never_reached_leaves_the_key_free(up, call, store):
    p, _ = call(up.url + '/c', '--db', store.url, '--deadline', '2s', '--proxy',
                f'http://127.0.0.1:{free_port()}')
    assert p.returncode == DOWN, p.logs()
    assert store.row(KEY)['state'] == 'FREE'
    assert call(up.url + '/c', '--db', store.url, data='another')[0].returncode == DONE


def test_no_store_but_the_one_that_is_named(up, call, tmp, state_dir):
    p, _ = call(up.url + '/c', env={'SEMEL_DB': f'sqlite:{tmp}/env.db'})
    assert p.returncode == DONE
    assert not (tmp / 'env.db').exists() and not state_dir.exists()


def test_a_store_that_is_down_sends_nothing(up, call):
    p, _ = call(up.url + '/c', '--db', f'postgres://nobody@127.0.0.1:{free_port()}/x')
    assert p.returncode == DOWN and not up.requests, p.logs()


def test_no_attempt_is_begun_without_a_claim_that_outlasts_it(up, call, pg_own, semel):
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0

    def breaks_the_store(up, conn, request):
        up.execute(request)
        pg_own.stop('immediate')
        return False
    up.plan = [breaks_the_store]
    up.plan += [status(503) for _ in range(1000)]
    p, seconds = call(up.url + '/c', '--db', url, '--deadline', '12s', '--attempt-timeout', '1s')
    # the claim was good for 6 s; an attempt needs 2 s of it
    assert p.returncode == UNKNOWN and seconds < 25, p.logs()
    assert len(up.times) > 1 and max(up.times) - min(up.times) < 6
    pg_own.start()


def test_a_store_that_goes_down_in_a_wait_does_not_unmake_the_reply_behind_it(up, call, pg_own, semel):
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0

    def breaks_the_store(up, conn, request):
        pg_own.stop('immediate')
        conn.sendall(b'HTTP/1.1 503 X\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n')
        return True
    up.plan = [breaks_the_store]
    p, _ = call(up.url + '/c', '--db', url, '--deadline', '5s', '--attempt-timeout', '1s')
    assert p.returncode == DONE and p.out(), p.logs()
    assert 'could not keep the reply' in p.err() and len(up.requests) == 2
    pg_own.start()


def test_a_reply_that_the_store_does_not_take_is_a_reply(up, call, pg_own, semel):
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0

    def breaks_the_store(up, conn, request):
        pg_own.stop('immediate')
        conn.sendall(up.execute(request))
        return True
    up.plan = [breaks_the_store]
    p, seconds = call(up.url + '/c', '--db', url, '--deadline', '4s', '--attempt-timeout', '3s')
    assert p.returncode == DONE and seconds < 25, p.logs()
    assert p.out() and 'could not keep the reply' in p.err()
    pg_own.start()
    p = wait_until(lambda: (r := call(up.url + '/c', '--db', url, '--attempt-timeout', '3s')[0])
                   and r.returncode != IN_FLIGHT and r, timeout=60)
    assert p.returncode == DONE and up.effects == {KEY: 1}, p.logs()


# -- through our own gateway -------------------------------------------------------------------------

def gateway(procs, build, up, url, *options):
    g = Gateway(procs, build.semel, up.url, url, *options)
    return g, f'http://127.0.0.1:{g.port}/charges'


def test_through_a_gateway_in_front_of_an_upstream_that_dedupes(up, call, procs, build, tmp):
    up.plan = [closes(True)]
    g, url = gateway(procs, build, up, f'sqlite:{tmp}/g.db', '--idempotent')
    p, _ = call(url)
    assert p.returncode == DONE, p.logs()
    assert up.effects == {KEY: 1}


def test_through_a_gateway_that_does_not_know_it_stops_as_unknown(call, procs, build, tmp):
    up = Upstream()
    up.plan = [closes(True)]
    g, url = gateway(procs, build, up, f'sqlite:{tmp}/g.db')
    p, seconds = call(url)
    assert p.returncode == UNKNOWN and seconds < 40, p.logs()
    assert 'the gateway does not know' in p.err()
    assert up.effects == {KEY: 1} and len(up.requests) == 1
    up.close()


def test_through_a_gateway_one_key_for_two_requests_is_shouted(up, call, procs, build, tmp):
    g, url = gateway(procs, build, up, f'sqlite:{tmp}/g.db')
    assert call(url)[0].returncode == DONE
    p, _ = call(url)
    assert p.returncode == DONE and len(up.requests) == 1
    p, _ = call(url, data='other')
    assert p.returncode == REJECTED and 'THE KEY WAS USED FOR ANOTHER REQUEST' in p.err()


def test_h31_through_a_gateway_that_did_not_keep_the_reply(up, call, procs, build, tmp):
    (tmp / 'g.yaml').write_text('policy:\n  reply_body_max: 10B\n')
    g, url = gateway(procs, build, up, f'sqlite:{tmp}/g.db', '--config', tmp / 'g.yaml')
    first, _ = call(url)
    assert first.returncode == DONE and first.out_bytes().startswith(b'effect 1'), first.logs()
    again, _ = call(url)
    assert again.returncode == DONE and b'reply-not-kept' in again.out_bytes(), again.logs()
    assert len(up.requests) == 1


def test_through_a_gateway_while_another_client_waits(up, call, procs, build, tmp):
    up.plan = [hangs(True)]
    g, url = gateway(procs, build, up, f'sqlite:{tmp}/g.db')
    first = procs.start([build.semel, 'call', 'POST', url, '--key', KEY, '--data', 'x'])
    wait_until(lambda: up.requests)
    second = procs.start([build.semel, 'call', 'POST', url, '--key', KEY, '--data', 'x'])
    second.wait_log('it is being executed')
    up.release.set()
    assert first.wait(30) == DONE and second.wait(30) == DONE, second.logs()
    assert first.out_bytes() == second.out_bytes() and up.effects == {KEY: 1}


# -- TLS ---------------------------------------------------------------------------------------------

@pytest.fixture
def tls(tmp):
    """(context of a server for 127.0.0.1, the CA's file)"""
    def openssl(*args):
        subprocess.run(['openssl', *args], check=True, capture_output=True, cwd=tmp)
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout',
            'key.pem', '-out', 'cert.pem', '-days', '2', '-subj', '/CN=test', '-addext',
            'subjectAltName=IP:127.0.0.1')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp / 'cert.pem', tmp / 'key.pem')
    return context, tmp / 'cert.pem'


def test_tls_with_a_ca_of_ones_own(call, tls):
    up = Upstream(dedupes=True, tls=tls[0])
    up.plan = [closes(True)]
    p, _ = call(up.url + '/c', '--cacert', tls[1])
    assert p.returncode == DONE, p.logs()
    assert up.effects == {KEY: 1} and same_bytes(up) == 2
    # verification is on: without the CA, and for another name, nothing is sent
    p, seconds = call(up.url + '/c')
    assert p.returncode == DOWN and 'not to be trusted' in p.err() and seconds < SOON, p.logs()
    p, _ = call(up.url.replace('127.0.0.1', 'localhost') + '/c', '--cacert', tls[1])
    assert p.returncode == DOWN and 'not to be trusted' in p.err(), p.logs()
    assert len(up.requests) == 2
    up.close()

# SPDX-License-Identifier: Apache-2.0
"""The supports of the system tests themselves: each must be able to fail."""
import signal
import socket
import subprocess
import sys

import pytest

import ports
from support import sanitizer_reports, wait_until


def test_wait_until_gives_up_and_names_what_it_waited_for():
    with pytest.raises(TimeoutError, match='the moon'):
        wait_until(lambda: False, timeout=0.05, what='the moon')


def test_wait_until_raises_the_last_error():
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, timeout=0.05)


def test_wait_until_returns_the_first_true_value():
    values = iter([0, None, 'x'])
    assert wait_until(lambda: next(values)) == 'x'


@pytest.mark.parametrize('line, bad', [
    ('==1==ERROR: AddressSanitizer: heap-use-after-free on address', True),
    ('a.c:3:5: runtime error: signed integer overflow', True),
    ('WARNING: ThreadSanitizer: data race (pid=1)', True),
    ("shop: x.c:9: f: Assertion `n > 0' failed.", True),
    ('==9== ERROR SUMMARY: 2 errors from 1 contexts', True),
    ('==9== ERROR SUMMARY: 0 errors from 0 contexts', False),
    ('shop: listening on 127.0.0.1:8080', False),
])
def test_sanitizer_reports_are_found(line, bad):
    assert bool(sanitizer_reports('first\n' + line + '\nlast')) == bad


def test_a_process_is_waited_for_and_its_output_kept(procs):
    p = procs.run(['sh', '-c', 'echo out; echo err >&2; exit 7'])
    assert (p.returncode, p.out(), p.err()) == (7, 'out\n', 'err\n')


def test_wait_log_fails_when_the_process_ends_first(procs):
    p = procs.start(['sh', '-c', 'echo hello'])
    with pytest.raises(AssertionError, match='ended'):
        p.wait_log('never')


def test_stop_cont_kill(procs):
    p = procs.start(['cat'], stdin=-1)
    p.stop()
    assert p.state() in 'Tt'
    p.cont()
    wait_until(lambda: p.state() not in 'Tt')
    assert p.kill() == -signal.SIGKILL


def test_postgres_stops_and_comes_back(pg_own):
    db = pg_own.new_database()
    pg_own.psql(db, 'CREATE TABLE t (n int); INSERT INTO t VALUES (42);')
    pg_own.stop('immediate')
    with pytest.raises(Exception, match='No such file|refused'):
        pg_own.connect(db)
    pg_own.start()
    assert pg_own.value(db, 'SELECT n FROM t') == 42


def test_postgres_is_as_safe_as_semel_demands(pg):
    for setting in ('fsync', 'full_page_writes', 'synchronous_commit'):
        assert pg.value('postgres', f'SHOW {setting}') == 'on'


def test_a_port_is_none_that_the_kernel_gives_to_clients():
    with socket.create_server(('127.0.0.1', 0)) as server:
        given = set()
        for _ in range(50):
            with socket.create_connection(server.getsockname()) as client:
                given.add(client.getsockname()[1])
    first, last = min(given), max(given)
    assert all(not first <= p <= last for p in ports.free_ports(50)), (first, last)


def test_a_port_belongs_to_whoever_asked_first_while_nobody_listens():
    mine = ports.free_port()
    assert ports.free_port() != mine
    ask = f'import ports; ports._candidates = lambda: range({mine}, {mine} + 50); print(ports.free_port())'
    other = subprocess.run([sys.executable, '-c', ask], env={'PYTHONPATH': ports.__file__.rpartition('/')[0]},
                           capture_output=True, text=True)
    assert mine < int(other.stdout) < mine + 50, other.stderr


def test_a_port_where_somebody_listens_is_left_out(monkeypatch):
    with socket.create_server(('127.0.0.1', 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, '_candidates', lambda: [taken])
        with pytest.raises(OSError, match='no port is free'):
            ports.free_port()

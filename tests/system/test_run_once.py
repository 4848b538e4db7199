# SPDX-License-Identifier: Apache-2.0
"""`semel run`: once per key, the same bytes and exit code for everybody after."""
import datetime
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import termios

import pytest

from support import wait_until

# One effect, a pause that ends when the test says so, output on both streams.
SCRIPT = 'echo x >> {e}; read _ < {go}; printf "out\\0put\\n"; echo warn >&2; exit 3'
OUT, ERR = b'out\0put\n', 'warn\n'


class Job:
    """A key, its effects file, and the pipe that lets its command go on."""

    def __init__(self, semel_path, procs, tmp, url, key='daily-report', script=SCRIPT):
        self.procs, self.url, self.key, self.semel = procs, url, key, semel_path
        self.effects_file, self.go_file = tmp / 'effects', tmp / 'go'
        if not self.go_file.exists():
            os.mkfifo(self.go_file)
        self.script = script.format(e=self.effects_file, go=self.go_file, d=tmp)

    def argv(self, *options):
        return [self.semel, 'run', self.key, '--db', self.url, '--lease', '1s', *options, '--',
                'sh', '-c', self.script]

    def start(self, *options, **kw):
        return self.procs.start(self.argv(*options), name='run', **kw)

    def run(self, *options, **kw):
        return self.procs.run(self.argv(*options), name='run', **kw)

    def effects(self):
        try:
            return self.effects_file.read_text().count('x')
        except FileNotFoundError:
            return 0

    def running(self, effects=1):
        wait_until(lambda: self.effects() == effects, 20, 'the command runs')

    def go(self):
        """Let the command go on: it waits for a line."""
        with open(self.go_file, 'w', encoding='ascii') as f:
            f.write('go\n')

    def nudge(self):
        """The same to one that may have ended, or be about to."""
        try:
            fd = os.open(self.go_file, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody waits
            return
        try:
            os.write(fd, b'go\n')
        except BrokenPipeError:
            pass
        finally:
            os.close(fd)


@pytest.fixture
def job(build, procs, tmp, store_url):
    return Job(build.semel, procs, tmp, store_url)


@pytest.fixture
def job_of(build, procs, tmp, store_url):
    return lambda script: Job(build.semel, procs, tmp, store_url, script=script)


def test_ten_at_once_run_once(job, store):
    ten = [job.start() for _ in range(10)]
    job.running()
    wait_until(lambda: sum(p.alive() for p in ten) == 1, 20, 'nine are answered')
    runner = next(p for p in ten if p.alive())
    for p in ten:
        if p is not runner:
            assert p.returncode == 75
            assert 'is in flight: ' in p.err() and '--wait' in p.err()
    # who holds it, since when, and when it ends
    shown = store.keys('show', job.key).stdout
    assert f'pid={runner.pid} ' in shown and f'host={os.uname().nodename} ' in shown
    assert 'state      IN_FLIGHT: it runs now' in shown
    assert '\nsince      20' in shown and '\nlease ends 20' in shown
    assert 'alive on this host' in shown
    job.go()
    assert runner.wait() == 3
    assert (runner.out_bytes(), runner.err()) == (OUT, ERR)
    later = [job.run() for _ in range(3)]
    assert [(p.returncode, p.out_bytes(), p.err()) for p in later] == [(3, OUT, ERR)] * 3
    assert job.effects() == 1
    assert store.row(job.key)['state'] == 'COMPLETED'


def test_ten_that_wait_get_the_one_result(job):
    ten = [job.start('--wait', '30s') for _ in range(10)]
    job.running()
    job.go()
    assert [p.wait() for p in ten] == [3] * 10
    assert {p.out_bytes() for p in ten} == {OUT}
    assert job.effects() == 1


def test_the_lease_is_renewed_while_the_command_lives(job, store):
    p = job.start()
    job.running()
    first = _seconds(store.row(job.key)['lease_until'])
    # two leases later it is still trusted
    wait_until(lambda: _seconds(store.row(job.key)['lease_until']) >= first + 2, 20, 'renewed')
    assert store.row(job.key)['state'] == 'IN_FLIGHT' and not store.row(job.key)['lease_over']
    assert job.run().returncode == 75
    job.go()
    assert p.wait() == 3


def _seconds(text):
    return datetime.datetime.fromisoformat(text.replace('Z', '+00:00')).timestamp()


def test_output_passes_through_while_the_command_runs(job_of):
    job = job_of('echo early; echo x >> {e}; read _ < {go}; echo late')
    p = job.start()
    p.wait_log('early')
    job.go()
    assert p.wait() == 0 and p.out() == 'early\nlate\n'


def test_stdout_and_stderr_replay_in_their_order(job_of, procs):
    job = job_of('echo 1; sleep 0.1; echo 2 >&2; sleep 0.1; echo 3')
    both = ['sh', '-c', 'exec "$@" 2>&1', 'sh', *job.argv()]
    assert procs.run(both).out() == '1\n2\n3\n'
    assert procs.run(both).out() == '1\n2\n3\n'


def test_two_payloads_h60(job_of, procs):
    job = job_of('echo x >> {e}; read _ < {go}')
    p = job.start()
    job.running()
    other = [a if a != job.script else 'echo other' for a in job.argv()]
    # a mismatch wins over "in flight" (H58), and over the wait
    r = procs.run([*other[:2], '--wait', '30s', *other[2:]])
    assert r.returncode == 65 and '"run sh"' in r.err()
    job.go()
    assert p.wait() == 0
    assert procs.run(other).returncode == 65
    assert procs.run([job.semel, 'run', job.key, '--db', job.url, '--operation', 'x', '--', 'sh',
                      '-c', job.script]).returncode == 65
    assert job.effects() == 1


def test_arguments_are_framed(semel, store_url):
    def run(*args):
        return semel('run', 'k', '--db', store_url, '--', 'echo', *args).returncode
    assert run('a b', 'c') == 0
    assert run('a', 'b c') == 65
    assert run('a b', 'c', '') == 65
    assert run('a b', 'c') == 0


def test_too_much_output_keeps_the_exit_code(job_of, store):
    job = job_of('echo x >> {e}; head -c 100000 /dev/zero; exit 4')
    first = job.run('--output-max', '64KiB')
    assert first.returncode == 4 and len(first.out_bytes()) == 100000
    again = job.run('--output-max', '64KiB')
    assert (again.returncode, again.out_bytes()) == (4, b'') and 'not kept' in again.err()
    assert store.row(job.key)['body_kept'] is False
    assert job.effects() == 1


def test_a_megabyte_with_every_byte(job_of):
    job = job_of('i=0; while [ $i -lt 16 ]; do head -c 65000 /dev/urandom; i=$((i+1)); done')
    first = job.run()
    assert first.returncode == 0 and len(first.out_bytes()) == 16 * 65000
    assert job.run().out_bytes() == first.out_bytes()


def test_a_command_that_cannot_start_leaves_the_key_free(semel, store_url, tmp):
    r = semel('run', 'k', '--db', store_url, '--', str(tmp / 'no-such'))
    assert r.returncode == 127 and 'the key is free' in r.err()
    r = semel('run', 'k', '--db', store_url, '--', str(tmp))
    assert r.returncode == 126
    assert semel('run', 'k', '--db', store_url, '--', 'echo', 'now').out() == 'now\n'


def test_release_on_lets_it_run_again(job_of):
    job = job_of('echo x >> {e}; exit 75')
    assert [job.run('--release-on', '3,70-80').returncode for _ in range(2)] == [75, 75]
    assert job.effects() == 2
    assert [job.run().returncode for _ in range(2)] == [75, 75]
    assert job.effects() == 3


def test_signals_are_passed_on_and_the_result_is_kept(job_of):
    job = job_of("trap 'echo bye; exit 9' TERM; echo x >> {e}; while :; do read _ < {go}; done")
    p = job.start()
    job.running()
    p.send(signal.SIGTERM)
    def ended():
        job.nudge()  # the shell may wait in open(), and does not hear the signal there
        return not p.alive()
    wait_until(ended, 20, 'the command to end')
    assert p.wait() == 9 and 'bye' in p.out()
    assert (r := job.run()).returncode == 9 and 'bye' in r.out()
    assert job.effects() == 1


def test_killed_by_a_signal_is_a_result_too(job_of):
    job = job_of('echo x >> {e}; kill -KILL $$')
    assert job.run().returncode == 128 + signal.SIGKILL
    assert job.run().returncode == 128 + signal.SIGKILL
    assert job.effects() == 1


def test_a_signal_ends_the_waiting(job):
    runner = job.start()
    job.running()
    waiter = job.start('--wait', '5m')
    wait_until(lambda: 'SigBlk:\t0000000000000000' not in
               open(f'/proc/{waiter.pid}/status', encoding='ascii').read(), what='it waits')
    assert waiter.terminate() == 128 + signal.SIGTERM
    job.go()
    assert runner.wait() == 3 and job.effects() == 1


def test_an_ignored_hangup_stays_ignored(job, procs):
    """nohup: a signal that was ignored does not end the waiting."""
    runner = job.start()
    job.running()
    waiter = procs.start(['sh', '-c', 'trap "" HUP; exec "$@"', 'sh', *job.argv('--wait', '60s')])
    wait_until(lambda: int(_status(waiter.pid, 'SigBlk'), 16) & 1 << signal.SIGTERM - 1, what='it waits')
    waiter.send(signal.SIGHUP)
    wait_until(lambda: not int(_status(waiter.pid, 'ShdPnd'), 16), what='the signal to be taken or dropped')
    job.go()
    assert runner.wait() == 3 and waiter.wait() == 3, waiter.logs()
    assert waiter.out_bytes() == OUT and job.effects() == 1


def _status(pid, name):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(line.split(':')[1].strip() for line in f if line.startswith(name + ':'))


def test_a_reader_that_goes_away_does_not_stop_the_recording(job_of, procs):
    job = job_of('echo x >> {e}; head -c 300000 /dev/zero; exit 5')
    r, w = os.pipe()
    p = subprocess.Popen(job.argv(), stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.DEVNULL)
    os.close(w)
    os.read(r, 1)
    os.close(r)
    assert p.wait(30) == 5
    again = job.run()
    assert (again.returncode, len(again.out_bytes())) == (5, 300000)
    assert job.effects() == 1


def test_a_slow_reader_does_not_stop_the_recording(job_of, store):
    """Its pipe is full and nobody reads: the result is recorded all the same."""
    job = job_of('echo x >> {e}; head -c 100000 /dev/zero')
    r, w = os.pipe()
    p = subprocess.Popen(job.argv(), stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.DEVNULL)
    os.close(w)
    try:
        store.wait_state(job.key, 'COMPLETED')
        assert p.poll() is None
        got = 0
        while chunk := os.read(r, 65536):
            got += len(chunk)
        assert got == 100000 and p.wait(30) == 0
    finally:
        os.close(r)
        p.kill()
        p.wait()


def _unread(fd):
    return struct.unpack('i', fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]


def _full(fd):
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return not poll.poll(0)


def test_a_slow_reader_of_both_streams_does_not_stop_the_recording(job_of, store):
    """One pipe for both (2>&1), and it is full: room for one write is not room for two."""
    # more than a pipe takes: when the command is through, something of each stream waits to be passed on
    job = job_of('head -c 66000 /dev/zero; head -c 66000 /dev/zero >&2; echo x >> {e}; read _ < {go}')
    r, w = os.pipe()
    os.set_blocking(w, False)
    while not _full(w):
        os.write(w, bytes(4096))
    os.set_blocking(w, True)
    left = _unread(r) + 2 * 66000
    p = subprocess.Popen(job.argv(), stdin=subprocess.DEVNULL, stdout=w, stderr=w)
    try:
        job.running()
        left -= len(os.read(r, 4096))
        wait_until(lambda: _full(w), 20, 'one stream has written')
        job.go()
        store.wait_state(job.key, 'COMPLETED')
        assert p.poll() is None and _unread(r) < left
        os.close(w)
        w = None
        while chunk := os.read(r, 65536):
            left -= len(chunk)
        assert left == 0 and p.wait(30) == 0
    finally:
        if w is not None:
            os.close(w)
        os.close(r)
        p.kill()
        p.wait()


def test_output_that_cannot_be_written_is_said(job_of, procs):
    job = job_of('echo x >> {e}; seq 1000')

    def run(to):
        return procs.run(['sh', '-c', f'exec "$@" {to}', 'sh', *job.argv()])
    first, again = run('>/dev/full'), run('>/dev/full')
    # it ran, and its own exit code says how; a replay has nothing to do but to give its output
    assert (first.returncode, again.returncode) == (0, 69)
    for p in (first, again):
        assert p.err().count('\n') == 1, p.logs()
        assert 'cannot write to stdout: No space left on device' in p.err()
        assert 'the same call again gives it again' in p.err()
    assert len(run('').out().splitlines()) == 1000 and job.effects() == 1


def test_a_reader_that_has_gone_is_no_error(job_of):
    job = job_of('echo x >> {e}; seq 1000; exit 5')
    for _ in range(2):
        r, w = os.pipe()
        os.close(r)
        p = subprocess.run(job.argv(), stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.PIPE,
                           timeout=60, check=False)
        os.close(w)
        assert (p.returncode, p.stderr) == (5, b'')


def test_a_stdout_that_does_not_block_gets_all_of_it(job_of):
    job = job_of('head -c 300000 /dev/zero')
    for _ in range(2):
        r, w = os.pipe()
        os.set_blocking(w, False)
        p = subprocess.Popen(job.argv(), stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.PIPE)
        try:
            wait_until(lambda: _full(w), 20, 'the pipe to be full')
            os.close(w)
            w = None
            got = 0
            while chunk := os.read(r, 65536):
                got += len(chunk)
            assert got == 300000
            assert p.communicate(timeout=30)[1] == b'' and p.returncode == 0
        finally:
            if w is not None:
                os.close(w)
            os.close(r)
            p.kill()
            p.communicate()


def test_a_background_process_left_behind_is_not_waited_for(job_of, tmp):
    job = job_of('(echo $$ > {d}/bg; read _ < {go}) & echo done')
    p = job.run(timeout=20)
    assert p.returncode == 0 and p.out() == 'done\n'
    assert job.run().out() == 'done\n'
    job.go()


def test_stdin_goes_to_the_command(build, procs, store_url):
    p = procs.start([build.semel, 'run', 'k', '--db', store_url, '--', 'cat'],
                    stdin=subprocess.PIPE)
    p.stdin.write(b'hello')
    p.stdin.close()
    assert p.wait() == 0 and p.out() == 'hello'


def test_started_without_standard_descriptors(build, procs, store_url, store):
    p = procs.run(['sh', '-c', 'exec "$@" <&- >&- 2>&-', 'sh', build.semel, 'run', 'k', '--db',
                   store_url, '--', 'echo', 'hi'])
    assert p.returncode == 0
    assert store.keys('show', 'k', '--body').stdout == 'hi\n'


def test_the_command_inherits_the_lock_and_nothing_else(semel, store_url):
    r = semel('run', 'k', '--db', store_url, '--', 'sh', '-c', 'for f in /proc/$$/fd/*; do '
              'echo "${f##*/} $(readlink $f)"; done')
    more = [line for line in r.out().splitlines() if int(line.split()[0]) > 2]
    assert [line.split('/')[-2] for line in more if 'pipe:' not in line] == ['locks'], r.out()


def test_the_command_knows_key_and_token(semel, store_url, store):
    r = semel('run', 'k 1', '--db', store_url, '--', 'sh', '-c', 'env | grep ^SEMEL_[KT] | sort',
              env={'SEMEL_KEY': 'outer', 'SEMEL_TOKEN': '1'})
    assert r.out() == f"SEMEL_KEY=k 1\nSEMEL_TOKEN={store.row('k 1')['token']}\n"


def test_an_ignored_sigchld_is_harmless(build, procs, store_url):
    p = procs.run(['sh', '-c', "trap '' CHLD; exec \"$@\"", 'sh', build.semel, 'run', 'k', '--db',
                   store_url, '--', 'sh', '-c', 'exit 3'])
    assert p.returncode == 3


@pytest.mark.parametrize('args, says', [
    (['run'], 'which key?'),
    (['run', 'k'], 'stands behind `--`'),
    (['run', 'k', 'echo', 'hi'], 'stands behind `--`'),
    (['run', '', '--', 'echo'], 'key'),
    (['run', 'k' * 256, '--', 'echo'], 'key'),
    (['run', 'k\u00e9', '--', 'echo'], 'key'),
    (['run', 'k', '--lease', '5', '--', 'echo'], 'needs a unit'),
    (['run', 'k', '--release-on', 'some', '--', 'echo'], 'any-failure'),
    (['run', 'k', '--output-max', '1GiB', '--', 'echo'], 'out of range'),
    (['run', 'k', '--db', 'mysql://x', '--', 'echo'], 'sqlite:'),
    (['run', 'k', '--db', '', '--', 'echo'], 'sqlite:'),
    (['keys', 'list', '--db='], 'sqlite:'),
    (['rum', 'k'], 'did you mean `semel run`'),
    (['keys', 'lst'], 'did you mean `semel keys list`'),
    (['keys', 'list', '--stuk'], 'did you mean --stuck'),
])
def test_usage_says_what_to_write(semel, args, says):
    r = semel(*args)
    assert r.returncode == 64 and says in r.err() and r.err().count('\n') == 1
    assert r.out() == ''


def test_help_teaches(semel):
    top = semel('--help')
    assert top.returncode == 0 and 'Exit codes' in top.out() and 'SEMEL_DB' in top.out()
    assert semel('help').out() == top.out()
    for words in (['run'], ['migrate'], ['keys', 'list'], ['keys', 'show'], ['keys', 'resolve'],
                  ['keys', 'release'], ['keys', 'purge']):
        r = semel('help', *words)
        assert r.returncode == 0 and r.out() == semel(*words, '--help').out()
        for part in ('Usage: semel ' + ' '.join(words), 'Options', '--db, --store URL', 'Examples',
                     'Exit codes', '76'):
            assert part in r.out(), (words, part)
        assert max(map(len, r.out().splitlines())) <= 100
    environment = semel('help', 'call').out().split('Environment')[1]
    assert 'PGPASSFILE' in environment and 'SEMEL_DB' not in environment  # only --db names its store
    assert semel('--version').out() == semel('run', '--version').out() == 'semel 0.1.0\n'
    r = semel()
    assert r.returncode == 64 and 'Usage' in r.err()


def test_options_before_the_command_and_the_default_store(semel, sqlite_url, state_dir):
    assert semel('--db', sqlite_url, 'run', 'k', '--', 'echo', 'hi').out() == 'hi\n'
    rows = semel('--json', '--store', sqlite_url, 'keys', 'list').out()
    assert json.loads(rows)['key'] == 'k'
    assert semel('keys', 'show', 'k', env={'SEMEL_DB': sqlite_url}).returncode == 0
    r = semel('run', 'k', '--', 'echo', 'default')
    assert r.out() == 'default\n' and f'sqlite:{state_dir}/semel.db' in r.err()
    assert (state_dir / 'semel.db').exists()
    assert 'sqlite:' not in semel('run', 'k', '--quiet', '--', 'echo', 'default').err()

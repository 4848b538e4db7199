# SPDX-License-Identifier: Apache-2.0
"""Processes that a test starts: each has its own process group and two log files, is ended by its
own pid only, and its logs are looked at for sanitizer reports when the test is over."""
import itertools
import os
import pathlib
import re
import signal
import subprocess

from .wait import wait_until

REPORT = re.compile(r'(ERROR: (Address|Leak|Memory)Sanitizer|WARNING: ThreadSanitizer|'
                    r'SUMMARY: \w+Sanitizer|runtime error: |Assertion .* failed|'
                    r'ERROR SUMMARY: [1-9])')


# Before a command: it is the first process of a namespace, where a signal without a handler is not
# delivered at all.  A namespace is root's to make; the process in it is ours.
PID_1 = ('unshare', '--pid', '--fork', '--kill-child', '--mount-proc')
if os.geteuid() != 0:
    PID_1 = ('sudo', '-n', *PID_1, 'setpriv', f'--reuid={os.geteuid()}', f'--regid={os.getegid()}',
             '--clear-groups')


def with_hosts(path):
    """Before a command: names are looked up in this file, instead of /etc/hosts."""
    enter = ('unshare', '--mount', 'sh', '-c', f'mount --bind {path} /etc/hosts && exec "$@"', 'sh')
    if os.geteuid() == 0:
        return enter
    return 'sudo', '-n', *enter, 'setpriv', f'--reuid={os.geteuid()}', f'--regid={os.getegid()}', '--clear-groups'


def pid_1_below(pid):
    """The process under `pid` that is the first of its namespace."""
    while True:
        with open(f'/proc/{pid}/status') as f:
            if re.search(r'^NSpid:.*\t1$', f.read(), re.M):
                return pid
        with open(f'/proc/{pid}/task/{pid}/children') as f:
            pid = int(f.read().split()[0])


def sanitizer_reports(text):
    """The lines of `text` that are a sanitizer's, valgrind's or an assertion's complaint."""
    return [line for line in text.splitlines() if REPORT.search(line)]


class Process:
    def __init__(self, argv, log_dir, name, env=None, cwd=None, stdin=subprocess.DEVNULL):
        self.argv = [str(a) for a in argv]
        self.name = name
        self.out_path = pathlib.Path(log_dir) / f'{name}.out'
        self.err_path = pathlib.Path(log_dir) / f'{name}.err'
        full_env = dict(os.environ)
        full_env.update({k: str(v) for k, v in (env or {}).items()})
        with open(self.out_path, 'wb') as out, open(self.err_path, 'wb') as err:
            self.popen = subprocess.Popen(self.argv, stdin=stdin, stdout=out, stderr=err,
                                          env=full_env, cwd=cwd, start_new_session=True)
        self.pid = self.popen.pid

    # -- looking ---------------------------------------------------------------------------
    def alive(self):
        return self.popen.poll() is None

    @property
    def returncode(self):
        """None while it runs; negative: the signal that ended it."""
        return self.popen.poll()

    @property
    def stdin(self):
        return self.popen.stdin

    def out(self):
        return self.out_path.read_text(errors='replace')

    def out_bytes(self):
        return self.out_path.read_bytes()

    def err(self):
        return self.err_path.read_text(errors='replace')

    def logs(self):
        return self.out() + self.err()

    def wait_log(self, pattern, timeout=10.0):
        """Wait until a line of stdout or stderr matches; returns the match.  Fails at once when
        the process ends without it."""
        rx = re.compile(pattern)

        def look():
            ended = not self.alive()
            m = rx.search(self.logs())
            if m is None and ended:
                return ('ended',)
            return m

        got = wait_until(look, timeout, f'{self.name}: {pattern!r} in its output:\n{self.logs()}')
        if got == ('ended',):
            raise AssertionError(f'{self.name} ended ({self.returncode}) before {pattern!r}:\n'
                                 f'{self.logs()}')
        return got

    def rss_kib(self):
        status = pathlib.Path(f'/proc/{self.pid}/status').read_text()
        return int(re.search(r'VmRSS:\s+(\d+)', status).group(1))

    # -- acting ----------------------------------------------------------------------------
    def send(self, sig):
        """A signal to the process itself, not to its children."""
        if self.alive():
            os.kill(self.pid, sig)

    def stop(self):
        """SIGSTOP, and wait until the kernel says that it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: self.state() in 'Tt', what=f'{self.name} stopped')

    def cont(self):
        os.kill(self.pid, signal.SIGCONT)

    def state(self):
        """The state letter of /proc/PID/stat."""
        return pathlib.Path(f'/proc/{self.pid}/stat').read_text().rsplit(')', 1)[1].split()[0]

    def terminate(self, timeout=15.0):
        """SIGTERM, wait, return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        """SIGKILL to the process (all its threads), and reap it."""
        self.send(signal.SIGKILL)
        return self.popen.wait(10)

    def kill_group(self):
        """SIGKILL to the process and those of its children that stayed in its group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.popen.wait(10)

    def wait(self, timeout=30.0):
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'{self.name} still runs after {timeout} s:\n{self.logs()}') from None


class Processes:
    """All processes of one test."""

    def __init__(self, log_dir):
        self.log_dir = pathlib.Path(log_dir)
        self.all = []
        self.numbers = itertools.count()  # two threads that start something share no log

    def start(self, argv, name=None, **kw):
        name = f'{next(self.numbers):02d}-{name or pathlib.Path(str(argv[0])).name}'
        p = Process(argv, self.log_dir, name, **kw)
        self.all.append(p)
        return p

    def run(self, argv, timeout=60.0, **kw):
        """Start, wait, return the ended Process."""
        p = self.start(argv, **kw)
        p.wait(timeout)
        return p

    def close(self):
        """End what still runs; returns the complaints found in the logs."""
        for p in self.all:
            if p.alive():
                p.kill_group()
            if p.popen.stdin:
                p.popen.stdin.close()
        return [f'{p.name}: {line}' for p in self.all for line in sanitizer_reports(p.logs())]

# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker of our own: KRaft, one node, free ports, its data in a folder of its own.

    server = Server({'auto.create.topics.enable': 'false'}).start()
    server.bootstrap            # 127.0.0.1:PORT, the same for its whole life
    server.kill(); server.start()
    server.close()              # and nothing of it is left

The broker's jars come from Maven Central once, into ${XDG_CACHE_HOME:-~/.cache}/semel/kafka (45
files, 43 MB); `python3 kafka_server.py` only fetches them.  Needs a JDK, 17 or newer.  Only the
standard library: used by with_kafka (programs in C) and by the system tests.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from ports import free_ports  # noqa: E402

JAVA_OPTIONS = ['-Xms128m', '-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1',
                '-Xshare:auto', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
                '-Dorg.slf4j.simpleLogger.showDateTime=true',
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
                '-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info']
READY = 'Kafka Server started'
START_SECONDS = 90


class NoKafka(Exception):
    """There is no JDK, no Maven or no network to begin with, or the broker does not start."""


def java():
    home = os.environ.get('JAVA_HOME')
    found = f'{home}/bin/java' if home else shutil.which('java')
    if not found or not os.access(found, os.X_OK):
        raise NoKafka('no java: the real Kafka broker needs a JDK (make setup)')
    return found


def cache():
    base = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    return pathlib.Path(base) / 'semel' / 'kafka'


def pause(seconds=0.02):
    time.sleep(seconds)


def properties(port, controller_port, data):
    text = (HERE / 'server.properties').read_text()
    return (text.replace('@PORT@', str(port)).replace('@CONTROLLER_PORT@', str(controller_port))
            .replace('@DATA@', str(data)))


def fetch():
    """The folder with the jars, and with a formatted data folder to copy.  Whoever comes first
    makes it; the others wait for the lock."""
    stamp = hashlib.sha256((HERE / 'pom.xml').read_bytes()).hexdigest()[:12]
    home = cache() / stamp
    if (home / 'complete').exists():
        return home
    java()
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / 'lock', 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home / 'complete').exists():
            return home
        shutil.rmtree(home, ignore_errors=True)
        mvn = shutil.which('mvn')
        if not mvn:
            raise NoKafka('no mvn: it fetches the jars of the Kafka broker (make setup)')
        with open(cache() / 'fetch.log', 'w', encoding='utf-8') as log:
            rc = subprocess.run([mvn, '-q', '-B', '-f', str(HERE / 'pom.xml'),
                                 'dependency:copy-dependencies', f'-DoutputDirectory={home}/jars',
                                 '-DincludeScope=runtime'],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode
        if rc != 0:
            raise NoKafka('the jars of the Kafka broker cannot be fetched:\n'
                          + (cache() / 'fetch.log').read_text()[-2000:])
        format_template(home)
        (home / 'complete').touch()
    return home


def format_template(home):
    """A data folder as a new node has it; making one takes a JVM as long as a start."""
    conf = home / 'template.properties'
    conf.write_text(properties(1, 2, home / 'template'))
    format_data(home, conf)


def format_data(home, conf, *more):
    """The data folder that the properties in conf name."""
    done = subprocess.run([java(), *JAVA_OPTIONS, '-cp', f'{home}/jars/*',
                           'kafka.tools.StorageTool', 'format', '-t', 'c2VtZWwtdGVzdHMtc2VtZQ',
                           '-c', str(conf), *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise NoKafka(f'the data folder cannot be formatted:\n{done.stdout}')


class Server:
    def __init__(self, settings=None):
        """settings: {name: value}, laid over server.properties."""
        self.home = fetch()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='semel-kafka-'))
        self.data = self.dir / 'data'
        self.log = self.dir / 'log'
        self.conf = self.dir / 'server.properties'
        self.settings = dict(settings or {})
        self.log.touch()
        self.popen = None
        self.make_data()
        self.port = None  # it has no place yet

    def make_data(self):
        shutil.copytree(self.home / 'template', self.data)

    def more_settings(self):
        """Laid over server.properties, anew for each try to find free ports."""
        return self.settings

    @property
    def bootstrap(self):
        return f'127.0.0.1:{self.port}'

    # -- life ------------------------------------------------------------------------------
    def alive(self):
        return self.popen is not None and self.popen.poll() is None

    def start(self):
        """Start, and return when it serves.  The first time it looks for free ports."""
        assert not self.alive(), 'it runs already'
        if not self.port:
            self.configure(*free_ports(2))
        self.launch()
        self.wait_until_it_serves()
        return self

    def configure(self, port, controller_port):
        self.port, self.controller_port = port, controller_port
        text = properties(port, controller_port, self.data)
        text += ''.join(f'{k}={v}\n' for k, v in self.more_settings().items())
        self.conf.write_text(text)

    def launch(self):
        self.started_at = self.log.stat().st_size
        argv = [java(), *JAVA_OPTIONS, '-cp', f'{self.home}/jars/*', 'kafka.Kafka', str(self.conf)]
        if shutil.which('setpriv'):
            argv = ['setpriv', '--pdeathsig=KILL', '--', *argv]  # it ends with whoever started it
        with open(self.log, 'ab') as log:
            self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          cwd=self.dir, start_new_session=True)

    def wait_until_it_serves(self):
        end = time.monotonic() + START_SECONDS
        while not self._serves(self.started_at):
            if not self.alive() or time.monotonic() > end:
                self.kill()
                raise NoKafka('the Kafka broker does not start:\n'
                              + self.log.read_text(errors='replace')[self.started_at:][-3000:])
            pause()

    def _serves(self, at):
        with open(self.log, 'rb') as log:
            log.seek(at)
            if READY.encode() not in log.read():
                return False
        try:
            socket.create_connection(('127.0.0.1', self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        """As an operator does it."""
        self._end(signal.SIGTERM)

    def kill(self):
        self._end(signal.SIGKILL)

    def _end(self, sig):
        if self.alive():
            self.popen.send_signal(signal.SIGCONT)
            self.popen.send_signal(sig)
        if self.popen is not None:
            try:
                self.popen.wait(30)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait(10)

    def restart(self, kill=False):
        self.kill() if kill else self.stop()
        return self.start()

    def pause(self):
        """It is there, takes connections, and does not answer: from the return on, none of its threads
        runs (a busy machine may take a moment to stop the last one)."""
        self.popen.send_signal(signal.SIGSTOP)
        while not self._stands_still():
            pause(0.002)

    def _stands_still(self):
        try:
            return all((t / 'stat').read_text().rsplit(')', 1)[1].split()[0] == 'T'
                       for t in pathlib.Path(f'/proc/{self.popen.pid}/task').iterdir())
        except OSError:
            return False  # one of them has just ended

    def resume(self):
        self.popen.send_signal(signal.SIGCONT)

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


if __name__ == '__main__':
    try:
        print(fetch())
    except NoKafka as e:
        sys.exit(f'kafka: {e}')

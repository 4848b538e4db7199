# SPDX-License-Identifier: Apache-2.0
"""The gateway beside nginx as a plain proxy to the same upstream: one worker each, no access log, in
turns, since a shared machine changes by the minute; what is compared is the median of the rounds.
CPU is what the kernel has counted for the processes, so it says something on a busy machine too."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

ROUNDS = 3
SLOW_MS = 2000
SMALL_POOL = 10  # connections to its database, of a service as they are mostly set up
NGINX = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.err;
events {{ worker_connections 20000; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; default_type text/plain;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
  uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
  upstream up {{ server 127.0.0.1:{upstream}; keepalive 4096; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=8192;
    location / {{
      proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto http;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""


def children(pid):
    path = pathlib.Path(f'/proc/{pid}/task/{pid}/children')
    return [int(p) for p in path.read_text().split()] if path.exists() else []


def threads_s(pid, name=None):
    """Seconds on a CPU, of all its threads, or of those with this name."""
    return sum(int((t / 'schedstat').read_text().split()[0])
               for t in pathlib.Path(f'/proc/{pid}/task').iterdir()
               if name in (None, (t / 'comm').read_text().strip())) / 1e9


def family_s(pid):
    """The same with its children, the ended ones included.  One that ends in between is looked at again: it is
    among the ended then."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
    ended = sum(map(int, fields[11:15])) / os.sysconf('SC_CLK_TCK')
    try:
        return ended + sum(threads_s(p) for p in children(pid))
    except (FileNotFoundError, ProcessLookupError):
        return family_s(pid)


class Server:
    """A process that serves on a port, and whose CPU seconds are `cpu()`."""

    def __init__(self, argv, log, pattern=None, port=None, env=None):
        self.log = pathlib.Path(log)
        with open(log, 'wb') as out:
            self.popen = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=out,
                                          env={**os.environ, **(env or {})})
        self.port = port
        deadline = time.monotonic() + 20
        while self.port is None:
            found = re.search(pattern, self.log.read_text())
            if found:
                self.port = int(found.group(1))
            elif self.popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log.read_text())
        self.pid = self.popen.pid

    def cpu(self):
        return threads_s(self.pid) - self.database()

    def database(self):
        """SQLite's work is done by a thread of the gateway."""
        return threads_s(self.pid, 'semel-sqlite')

    def close(self):
        self.popen.terminate()
        self.popen.wait(30)


class Bench:
    def __init__(self, build, folder, seconds, postgres):
        self.load = build / 'bench/http_load'
        self.seconds = max(1, int(seconds))
        self.postgres = postgres
        self.sequence = 0
        db = postgres.new_database()
        url = postgres.url(db)
        conninfo = f'host={postgres.dir} port={postgres.port} user=postgres dbname={db}'
        self.upstream, self.small = (
            Server([build / 'bench/http_upstream', SLOW_MS, links, conninfo],
                   f'{folder}/upstream{links}.log', r'port (\d+)') for links in (64, SMALL_POOL))
        self.nginx = self.start_nginx(folder)
        self.sqlite = self.start_gateway(build, folder, 'sqlite', f'sqlite:{folder}/gateway.db')
        subprocess.run([build / 'src/cmd/semel', 'migrate', '--db', url], check=True,
                       capture_output=True)
        self.pg = self.start_gateway(build, folder, 'postgres', url)
        self.pg_small = self.start_gateway(build, folder, 'small', url, self.small)

    def start_nginx(self, folder):
        from support.wait import wait_until
        from ports import free_port  # by support
        port = free_port()
        conf = pathlib.Path(folder) / 'nginx.conf'
        conf.write_text(NGINX.format(dir=folder, port=port, upstream=self.upstream.port))
        server = Server(['nginx', '-c', conf, '-p', folder], f'{folder}/nginx.log', port=port)
        wait_until(lambda: children(server.pid), timeout=10, what='nginx to start')
        server.cpu = lambda: sum(threads_s(p) for p in children(server.pid))
        return server

    def start_gateway(self, build, folder, name, url, upstream=None):
        return Server([build / 'src/cmd/semel', 'gateway', '--listen', '127.0.0.1:0', '--upstream',
                       f'http://127.0.0.1:{(upstream or self.upstream).port}', '--db', url, '--log', 'none'],
                      f'{folder}/{name}.log', r'listening on 127\.0\.0\.1:(\d+)',
                      env={'SEMEL_UPSTREAM_CONNECTIONS_MAX': '5000'})

    def close(self):
        for s in (self.sqlite, self.pg, self.pg_small, self.nginx, self.upstream, self.small):
            s.close()

    def database_s(self, server):
        return family_s(self.postgres.popen.pid) + server.database()

    def new_key(self):
        self.sequence += 1
        return f'bench-{os.getpid()}-{self.sequence}'

    def run(self, server, n, key='none', most=0, target='/orders', seconds=None):
        """One load on one server: what http_load says, and microseconds of CPU a request."""
        before, db_before = server.cpu(), self.database_s(server)
        out = subprocess.run([self.load, str(server.port), str(n), str(seconds or self.seconds), key,
                              str(most), target], check=True, capture_output=True, text=True)
        result = json.loads(out.stdout)
        count = max(result['requests'], 1)
        result['cpu_us'] = (server.cpu() - before) * 1e6 / count
        result['db_us'] = (self.database_s(server) - db_before) * 1e6 / count
        return result

    def rounds(self, n, *servers, **kw):
        """The servers in turns; for each the medians."""
        got = [[] for _ in servers]
        for _ in range(ROUNDS):
            for results, server in zip(got, servers):
                results.append(self.run(server, n, **kw))
        return [median(results) for results in got]

    def replays_cold(self, server, n):
        """Keys that this process does not remember any more."""
        key = 'seq:' + self.new_key()
        filled = self.run(server, n, key)
        time.sleep(1.2)  # the memory of a reply just kept is a second long
        most = filled['requests'] - n
        return self.run(server, n, key, most=max(most, 1))

    def storm(self, server, n):
        """Duplicates of a request that runs."""
        key = 'one:' + self.new_key()
        argv = [self.load, str(server.port), '1', '4', key, '1', '/slow']
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as first:
            time.sleep(0.2)
            result = self.run(server, n, key, target='/slow', seconds=1)
            first.wait()
        assert list(result['statuses']) == ['409'], result
        return result


def median(results):
    return {k: statistics.median(r[k] for r in results)
            for k in ('requests', 'per_s', 'p50_ms', 'p99_ms', 'cpu_us', 'db_us')}


def row(report, n, what, r):
    report.say(f'  {n:>5} {what:<24} {r["per_s"]:>8.0f}/s {r["p50_ms"]:>8.2f} {r["p99_ms"]:>8.2f} ms'
               f' {r["cpu_us"] / 1e3:>9.4f} {r["db_us"] / 1e3:>9.4f}')


def at(report, bench, n):
    """All kinds of requests at n connections."""
    nginx, passed = bench.rounds(n, bench.nginx, bench.sqlite)
    hot = 'one:' + bench.new_key()
    bench.run(bench.sqlite, 1, hot, most=1)
    row(report, n, 'nginx', nginx)
    row(report, n, 'no key', passed)
    results = {'hot': bench.run(bench.sqlite, n, hot)}
    row(report, n, 'replay, hot', results['hot'])
    row(report, n, '409 storm', bench.storm(bench.sqlite, n))
    for name, server in (('SQLite', bench.sqlite), ('PostgreSQL', bench.pg)):
        results[name] = bench.run(server, n, 'seq:' + bench.new_key())
        row(report, n, f'fresh key, {name}', results[name])
        row(report, n, f'replay, cold, {name}', bench.replays_cold(server, n))
    if n >= 16:
        report.bar(f'requests per CPU second at {n}, no key, beside nginx',
                   nginx['cpu_us'] / passed['cpu_us'], 1)
        report.bar(f'replays of a hot key at {n} beside nginx proxying',
                   results['hot']['per_s'] / nginx['per_s'], 1)
    if n == 64:
        for name in ('SQLite', 'PostgreSQL'):
            report.bar(f'CPU of the gateway at {n}, 2 * no key / fresh key on {name}',
                       2 * passed['cpu_us'] / results[name]['cpu_us'], 1)


def commits(report, bench, pool, upstream, gateway):
    """Fresh keys before an upstream that commits a row for each request, to the same server."""
    alone, passed, claimed = [], [], []
    for _ in range(ROUNDS):
        alone.append(bench.run(upstream, 64, target='/commit'))
        passed.append(bench.run(gateway, 64, target='/commit'))
        claimed.append(bench.run(gateway, 64, 'seq:' + bench.new_key(), target='/commit'))
    alone, passed, claimed = median(alone), median(passed), median(claimed)
    row(report, 64, f'commits, pool of {pool}', alone)
    row(report, 64, 'no key before it', passed)
    row(report, 64, 'fresh keys before it', claimed)
    report.bar(f'fresh keys at 64 before an upstream that commits on a pool of {pool}, beside it '
               'alone', claimed['per_s'] / alone['per_s'], 0.75)
    report.bar('CPU of the gateway there, 2 * no key / fresh key',
               2 * passed['cpu_us'] / claimed['cpu_us'], 1)


def part_gateway(report, seconds, build, postgres):
    with tempfile.TemporaryDirectory(dir=build) as folder:
        os.chmod(folder, 0o755)  # nginx's worker is another user
        bench = Bench(build, folder, seconds, postgres)
        try:
            report.say('The gateway beside nginx: CPU seconds per 1,000 requests, of the proxy and of '
                       'the database')
            report.say(f'  conns {"":<24} {"rate":>10} {"p50":>8} {"p99":>8}    {"proxy":>9} '
                       f'{"database":>9}')
            for n in (1, 16, 64, 256):
                at(report, bench, n)
            nginx, slow = bench.rounds(4000, bench.nginx, bench.sqlite, target='/slow',
                                       seconds=max(4 * SLOW_MS / 1000, bench.seconds))
            row(report, 4000, f'nginx, {SLOW_MS} ms upstream', nginx)
            row(report, 4000, f'no key, {SLOW_MS} ms upstream', slow)
            report.bar('requests per CPU second at 4000 waiting, no key, beside nginx',
                       nginx['cpu_us'] / slow['cpu_us'], 1)
            commits(report, bench, 64, bench.upstream, bench.pg)
            commits(report, bench, SMALL_POOL, bench.small, bench.pg_small)
        finally:
            bench.close()


if __name__ == '__main__':  # alone: bench/gateway.py BUILD [SECONDS]
    import importlib.machinery
    import sys
    ROOT = pathlib.Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(ROOT / 'tests/system'))
    from support.postgres import Postgres
    run = importlib.machinery.SourceFileLoader('run', str(ROOT / 'bench/run')).load_module()
    server = Postgres({'max_connections': '400'}).start()
    try:
        part_gateway(run.Report(), float(sys.argv[2]) if len(sys.argv) > 2 else 3,
                     pathlib.Path(sys.argv[1]), server)
    finally:
        server.close()

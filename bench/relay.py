# SPDX-License-Identifier: Apache-2.0
"""The relay on a real PostgreSQL and a real Kafka (one node, fsync as it comes): how fast it drains
the outbox, what that costs, how late an event is.  Beside it, in turns: the tutorial's loop in C, and
each of the three things that a relay cannot do without, alone: librdkafka sending the same messages,
DELETE of the same rows, reading them (bench/bus_rate.c)."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from gateway import family_s, threads_s

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tools'))
from embed_sql import statement  # noqa: E402

ROUNDS = 3
WARM, DRAINS = 2, 5  # turns of the drain
ROWS, BYTES, KEYS, PARTITIONS = 100_000, 400, 1000, 6
SEED_ROWS = 2000  # at one a time
WORKERS = 4       # of semel consume: connections
RATE = 500        # of the latency's rows, a second
FILL = '''INSERT INTO semel.outbox (topic, key, payload)
SELECT %s, 'k' || i %% %s, convert_to(repeat('x', %s), 'UTF8') FROM generate_series(0, %s - 1) i'''
SEED_TABLE = '''
CREATE TABLE outbox_event (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id text NOT NULL,
  payload bytea, status text NOT NULL DEFAULT 'PENDING', locked_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz);
CREATE INDEX ON outbox_event (created_at) WHERE status = 'PENDING' '''
SEED_FILL = '''INSERT INTO outbox_event (aggregate_id, payload)
SELECT 'k' || i %% %s, convert_to(repeat('x', %s), 'UTF8') FROM generate_series(0, %s - 1) i'''


def load():
    return os.getloadavg()[0]


def progress(what):
    if sys.stderr.isatty() or os.environ.get('BENCH_PROGRESS'):
        print(f'  {time.strftime("%H:%M:%S")} {what}', file=sys.stderr, flush=True)


def peak_mb(pid):
    return int(re.search(r'VmHWM:\s+(\d+)', pathlib.Path(f'/proc/{pid}/status').read_text())[1]) / 1024


class Daemon:
    """A program with an admin listener."""

    def __init__(self, argv):
        self.log = tempfile.NamedTemporaryFile('w+', suffix='.log')
        argv = [str(a) for a in argv] + ['--admin', '127.0.0.1:0']
        if shutil.which('setpriv'):
            argv = ['setpriv', '--pdeathsig=KILL', '--', *argv]  # it ends with us
        self.popen = subprocess.Popen(argv, stdout=self.log, stderr=self.log)
        self.pid, self.admin = self.popen.pid, None
        self.port = int(self.wait_log(r'admin (?:listener )?on port (\d+)')[1])

    def wait_log(self, pattern):
        end = time.monotonic() + 30
        while True:
            text = pathlib.Path(self.log.name).read_text()
            found = re.search(pattern, text)
            if found:
                return found
            if self.popen.poll() is not None or time.monotonic() > end:
                raise RuntimeError(text)
            time.sleep(0.02)

    def metric(self, name):
        """A look costs the machine that is measured: one connection, and no more than is needed."""
        if self.admin is None:
            self.admin = http.client.HTTPConnection('127.0.0.1', self.port, timeout=10)
        self.admin.request('GET', '/metrics')
        text = b'\n' + self.admin.getresponse().read()
        return sum(float(line.split(b'\n', 1)[0]) for line in text.split(b'\n%s ' % name.encode())[1:])

    def cpu(self):
        return threads_s(self.pid)

    def stop(self):
        self.popen.send_signal(signal.SIGTERM)
        code = self.popen.wait(30)
        text = pathlib.Path(self.log.name).read_text()
        self.log.close()
        assert code == 0, f'exit code {code}\n{text}'
        return text


class Bench:
    topics = 0

    def __init__(self, build, server, kafka):
        self.build, self.server, self.kafka = build, server, kafka
        self.semel, self.rate_tool = build / 'src/cmd/semel', build / 'bench/bus_rate'

    def database(self, notify=True):
        db = self.server.new_database()
        self.run_semel('migrate', '--db', self.server.url(db))
        if notify:
            self.run_semel('migrate', '--notify', 'on', '--db', self.server.url(db))
        return db

    def run_semel(self, *argv):
        subprocess.run([str(self.semel), *argv], check=True, capture_output=True)

    def topic(self):
        Bench.topics += 1
        return self.kafka.create_topic(f'bench{Bench.topics}', PARTITIONS)

    def rate(self, *argv):
        progress(argv[0])
        done = subprocess.run([str(self.rate_tool), *map(str, argv)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def relay(self, db, **options):
        more = [a for k, v in options.items() for a in (f'--{k.replace("_", "-")}', str(v))]
        return Daemon([self.semel, 'relay', '--db', self.server.url(db), '--brokers',
                       self.kafka.bootstrap, *more])

    def fill(self, db, topic, rows, size=BYTES):
        self.server.sql(db, FILL, (topic, KEYS, size, rows))
        return time.monotonic()

    def clear(self, db):
        self.server.sql(db, 'TRUNCATE semel.outbox')


def published(relays):
    return sum(r.metric('semel_relay_rows_total{outcome="published"}') for r in relays)


def wait_published(relays, until, timeout=120):
    """Each look costs the relay some CPU: they become more as the end comes nearer."""
    begun, before = time.monotonic(), published(relays)
    while (done := published(relays)) < until:
        now = time.monotonic()
        if now > begun + timeout:
            raise RuntimeError(f'{done} of {until} rows after {timeout} s: '
                               + pathlib.Path(relays[0].log.name).read_text())
        left_s = (until - done) * (now - begun) / (done - before) if done > before else 1
        time.sleep(min(0.02, max(0.002, left_s / 2)))
    return time.monotonic()


def drain(bench, db, topic, rows=ROWS, size=BYTES, relays=1, clear=True, **options):
    """Relays that are there already, and idle; then all rows at once in one commit."""
    if clear:
        bench.clear(db)
    progress(f'drain {relays} {options}')
    group = [bench.relay(db, **options) for _ in range(relays)]
    try:
        share = 16 // relays
        end = time.monotonic() + 30
        while any(r.metric('semel_relay_owned_slots') != share for r in group):
            assert time.monotonic() < end, 'the relays do not share the slots'
            time.sleep(0.05)
        warm = 2000 if size < 10_000 else 100
        bench.fill(db, topic, warm, size)
        wait_published(group, warm)
        time.sleep(0.3)
        cpu = [r.cpu() for r in group]
        begun = bench.fill(db, topic, rows, size)
        s = wait_published(group, warm + rows) - begun
        return {'per_s': rows / s, 'cpu_s': (sum(r.cpu() for r in group) - sum(cpu)) / rows * 100_000,
                'rss_mb': max(peak_mb(r.pid) for r in group)}
    finally:
        for r in group:
            r.stop()


def middle(results):
    """The median of each number."""
    return {k: statistics.median(r[k] for r in results) for k in ('per_s', 'cpu_s', 'rss_mb')}


def line(report, name, r, note=''):
    report.say(f'  {name:<42} {r["per_s"]:>9.0f} {r["cpu_s"]:>9.2f} {r["rss_mb"]:>7.0f} {note}')


def head(report, title):
    report.say(f'{title} (load {load():.1f})')
    report.say(f'  {"":<42} {"rows/s":>9} {"CPU s":>9} {"RSS MB":>7}')


def part_drain(report, bench):
    """100,000 rows of 400 bytes."""
    db = bench.database()
    dsn = bench.server.dsn(db)
    bench.server.sql(db, SEED_TABLE)
    topic, brokers = bench.topic(), bench.kafka.bootstrap
    turns = {k: [] for k in ('seed', 'produce', 'delete', 'read', 'owned', 'keep', 'exactly-once')}
    for turn in range(WARM + DRAINS):
        if turn == WARM:  # the broker compiles its code while it works: what came before does not count
            turns = {k: [] for k in turns}
        bench.server.sql(db, SEED_FILL, (KEYS, BYTES, SEED_ROWS))
        turns['seed'].append(bench.rate('seed', dsn, brokers, topic))
        turns['produce'].append(bench.rate('produce', brokers, topic, ROWS, BYTES, KEYS))
        bench.clear(db)
        bench.fill(db, topic, ROWS)
        turns['read'].append(bench.rate('read', dsn))
        turns['delete'].append(bench.rate('delete', dsn))
        turns['owned'].append(drain(bench, db, topic))
        turns['keep'].append(drain(bench, db, topic, done='keep'))
        turns['exactly-once'].append(drain(bench, db, topic, mode='exactly-once'))
    m = {k: middle(v) for k, v in turns.items()}
    for k in ('seed', 'produce', 'delete', 'read'):
        m[k]['cpu_s'] *= 100_000 / turns[k][0]['rows']
    floor = 1 / (1 / m['produce']['per_s'] + 1 / m['delete']['per_s'] + 1 / m['read']['per_s'])
    head(report, f'{ROWS:,} rows of {BYTES} bytes, {PARTITIONS} partitions, acks=all; CPU per 100,000')
    for k, name in (('seed', '(a) the tutorial\'s loop in C'), ('produce', '(b) librdkafka alone'),
                    ('delete', '(c) DELETE alone, 1,000 a statement'), ('read', '(d) reading alone')):
        line(report, name, m[k])
    for k, name in (('owned', 'owned'), ('keep', 'owned, --done keep'), ('exactly-once', 'exactly-once')):
        line(report, name, m[k], ' '.join(f'{r["per_s"]:.0f}' for r in turns[k]))
    owned = m['owned']
    report.bar('owned beside (a)', owned['per_s'] / m['seed']['per_s'], 10)
    report.bar(f'owned beside 1/(1/b + 1/c + 1/d) = {floor:.0f}', owned['per_s'] / floor, 1)
    report.bar('exactly-once beside owned', m['exactly-once']['per_s'] / owned['per_s'], 0.5)
    report.bar('0.5 s of CPU / owned\'s for 100,000 rows', 0.5 / owned['cpu_s'], 1)
    report.bar('64 MB / owned\'s RSS', 64 / owned['rss_mb'], 1)


def part_shapes(report, bench):
    """Relays beside each other, and rows of other sizes."""
    db, topic = bench.database(), bench.topic()
    head(report, 'Several relays')
    for n in (1, 2, 4):
        line(report, f'{n} relay{"s" if n > 1 else ""}', drain(bench, db, topic, relays=n))
    head(report, 'Rows of other sizes, one relay; CPU per 100,000 rows')
    for size, rows in ((100, ROWS), (400, ROWS), (4096, 20_000), (65536, 2000)):
        r = drain(bench, db, topic, rows=rows, size=size)
        line(report, f'{rows:,} rows of {size} bytes', r, f'{r["per_s"] * size / 1e6:.0f} MB/s')


def part_latency(report, bench, seconds):
    """At a steady rate: from the moment COMMIT is asked for, and from its acknowledgement."""
    db, topic = bench.database(), bench.topic()
    dsn = bench.server.dsn(db)
    turns = {'bare': [], 'listen': [], 'poll': []}
    cpu = {'listen': [], 'poll': []}
    for turn in range(1 + ROUNDS):
        if turn == 1:  # as in the drain: the first does not count
            turns, cpu = {k: [] for k in turns}, {k: [] for k in cpu}
        turns['bare'].append(bench.rate('latency', dsn, bench.kafka.bootstrap, topic, RATE, seconds, 'bare'))
        bench.clear(db)
        for how in ('listen', 'poll'):
            r = bench.relay(db, listen='on' if how == 'listen' else 'off')
            r.wait_log(r'owns 16 of')
            bench.fill(db, topic, 100)
            wait_published([r], 100)
            before = r.cpu()
            turns[how].append(bench.rate('latency', dsn, bench.kafka.bootstrap, topic, RATE, seconds, 'relay'))
            cpu[how].append((r.cpu() - before) / seconds)
            r.stop()
    report.say(f'Latency at {RATE} rows/s, ms (load {load():.1f})')
    report.say(f'  {"":<36} {"from COMMIT asked":>18} {"from its answer":>18}')
    m = {}
    for k, name in (('bare', 'commit, then produce'), ('listen', 'relay, LISTEN'), ('poll', 'relay, polling')):
        m[k] = {f: statistics.median(t[f] for t in turns[k]) for f in turns[k][0] if f != 'rows'}
        note = f'{100 * statistics.median(cpu[k]):.0f}% of a CPU' if k in cpu else ''
        report.say(f'  {name:<36} {m[k]["asked_p50_ms"]:>8.2f} {m[k]["asked_p99_ms"]:>9.2f} '
                   f'{m[k]["committed_p50_ms"]:>8.2f} {m[k]["committed_p99_ms"]:>9.2f}  {note}')
    report.bar('2 * bare p50 / LISTEN\'s', 2 * m['bare']['asked_p50_ms'] / m['listen']['asked_p50_ms'], 1)
    report.bar('4 * bare p99 / LISTEN\'s', 4 * m['bare']['asked_p99_ms'] / m['listen']['asked_p99_ms'], 1)


def explain(bench, db, slots):
    text = '\n'.join(statement(ROOT / 'sql/postgres/outbox_fetch.sql'))
    with bench.server.connect(db) as c, c.cursor() as cur:
        cur.execute('PREPARE f (smallint[], integer[], text[], bigint, bigint) AS ' + text)
        cur.execute('SET plan_cache_mode = force_generic_plan')
        array = f"'{{{','.join(map(str, slots))}}}', '{{{','.join('5000' for _ in slots)}}}', '{{}}', 1677, 5000"
        for _ in range(2):  # the second time without hint bits to set, nor caches of the session to fill
            cur.execute(f'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE f ({array})')
            plan = cur.fetchone()[0][0]['Plan']
        return plan['Shared Hit Blocks'] + plan['Shared Read Blocks'], plan['Actual Rows']


INDEXES = '''SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
    WHERE indrelid = 'semel.outbox'::regclass
      AND indexrelid NOT IN (SELECT conindid FROM pg_constraint WHERE conrelid = indrelid)'''


def part_kept(report, bench, kept):
    """With a history of PUBLISHED rows."""
    none, full, topic = bench.database(), bench.database(), bench.topic()
    progress(f'{kept:,} rows')
    made = bench.server.sql(full, INDEXES)  # built afterwards: a row costs 66 us with them
    for name, _ in made:
        bench.server.sql(full, f'DROP INDEX {name}')
    bench.server.sql(full, '''INSERT INTO semel.outbox (topic, key, payload, status, published_at)
        SELECT %s, 'k' || i %% 1000, 'x', 'PUBLISHED', now() FROM generate_series(1, %s) i''', (topic, kept))
    for _, made_by in made:
        bench.server.sql(full, made_by)
    bench.server.sql(full, 'VACUUM ANALYZE semel.outbox')
    bench.server.sql(full, 'CHECKPOINT')
    bench.fill(full, topic, 100)
    buffers, rows = explain(bench, full, range(0, 16, 4))
    report.say(f'{kept:,} PUBLISHED rows and 100 PENDING: a lane\'s fetch of its 4 slots reads {rows:.0f} rows')
    report.bar('50 / buffers that it touches', 50 / buffers, 1)
    bench.server.sql(full, "DELETE FROM semel.outbox WHERE status = 'PENDING'")
    turns = {'none': [], 'full': []}
    for _ in range(ROUNDS):
        bench.clear(none)
        turns['none'].append(drain(bench, none, topic, clear=False, done='keep'))
        turns['full'].append(drain(bench, full, topic, clear=False, done='keep'))
    m = {k: middle(v) for k, v in turns.items()}
    head(report, 'Draining with --done keep')
    line(report, 'an empty table', m['none'])
    line(report, f'with {kept:,} PUBLISHED rows', m['full'])
    report.bar('CPU of an empty table / with them', m['none']['cpu_s'] / m['full']['cpu_s'], 0.9)


def part_relay(report, args, build, server, kafka):
    bench = Bench(build, server, kafka)
    parts = {'drain': lambda: part_drain(report, bench), 'shapes': lambda: part_shapes(report, bench),
             'latency': lambda: part_latency(report, bench, args.seconds)}
    if args.kept:
        parts['kept'] = lambda: part_kept(report, bench, args.kept)
    for name, part in parts.items():
        if args.piece in (None, name):
            part()


def part_consume(report, args, build, server, kafka):
    """`semel consume --sql` beside one transaction a message, beside librdkafka alone, and beside what
    PostgreSQL makes of the same statements without Kafka."""
    bench = Bench(build, server, kafka)
    topic, brokers, few = bench.topic(), kafka.bootstrap, 5000
    bench.rate('produce', brokers, topic, ROWS, BYTES, KEYS)
    turns = {'bare': [], 'one': [], 'many': [], 'database': []}
    for i in range(ROUNDS):
        db = consume_database(bench)
        turns['bare'].append(bench.rate('consume', brokers, topic, ROWS, f'bare{i}'))
        turns['one'].append(bench.rate('apply', server.dsn(db), brokers, topic, few, f'one{i}'))
        turns['many'].append(consumed(bench, db, topic, f'many{i}'))
        db, batch = consume_database(bench), round(turns['many'][-1]['batch'])
        with Busy(server, db) as busy:
            alone = bench.rate('inbox', server.dsn(db), ROWS, BYTES, KEYS, batch, WORKERS)
        turns['database'].append({**alone, **busy.of(alone['rows'])})
    m = {k: middle(v) for k, v in turns.items()}
    m['one']['cpu_s'] *= 100_000 / few
    for k in ('bare', 'database'):
        m[k]['cpu_s'] *= 100_000 / turns[k][0]['rows']
    batch = statistics.median(r['batch'] for r in turns['many'])
    head(report, f'Consuming {ROWS:,} messages of {BYTES} bytes, an INSERT each; CPU per 100,000')
    line(report, 'librdkafka alone, no database', m['bare'])
    line(report, 'one transaction a message', m['one'])
    line(report, 'semel consume --sql', m['many'], Busy.note(turns['many']))
    line(report, f'the database alone, {WORKERS} connections', m['database'], Busy.note(turns['database']))
    report.say(f'  {batch:.0f} messages a transaction in both')
    report.bar('semel consume beside one transaction a message', m['many']['per_s'] / m['one']['per_s'], 10)
    report.bar('semel consume beside librdkafka alone', m['many']['per_s'] / m['bare']['per_s'], 0.5)
    report.bar('semel consume beside the database alone', m['many']['per_s'] / m['database']['per_s'], 0.8)


def consume_database(bench):
    db = bench.database(notify=False)
    bench.server.sql(db, '''CREATE TABLE effect (n bigserial PRIMARY KEY, key text, payload text);
                            CREATE TABLE naive_processed (event_id text PRIMARY KEY)''')
    return db


def idle_s():
    """Of all CPUs, since the machine started."""
    with open('/proc/stat', encoding='ascii') as f:
        return int(f.readline().split()[4]) / os.sysconf('SC_CLK_TCK')


AT_WORK = '''SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'
AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client' '''


class Busy:
    """How busy the database is meanwhile: its CPU, how many connections are at work in it (run, or wait
    for its disk or locks) and not waiting for their client, and what of the machine nobody uses."""

    def __init__(self, server, db):
        self.server, self.db, self.seen, self.ending = server, db, [], threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        conn = self.server.connect('postgres')  # no `with`: one transaction would see one moment only
        with conn.cursor() as cur:
            while not self.ending.wait(0.05):
                cur.execute(AT_WORK, (self.db,))
                self.seen.append(cur.fetchone()[0])
        conn.close()

    def __enter__(self):
        self.begun, self.cpu, self.idle = time.monotonic(), family_s(self.server.popen.pid), idle_s()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.s = time.monotonic() - self.begun
        self.cpu, self.idle = family_s(self.server.popen.pid) - self.cpu, idle_s() - self.idle
        self.ending.set()
        self.thread.join()

    def of(self, rows):
        return {'database_s': self.cpu / rows * 100_000, 'at_work': statistics.mean(self.seen),
                'idle': self.idle / self.s / os.cpu_count()}

    @staticmethod
    def note(results):
        m = {k: statistics.median(r[k] for r in results) for k in ('database_s', 'at_work', 'idle')}
        return (f'database: {m["database_s"]:.2f} s of CPU, {m["at_work"]:.1f} of {WORKERS} connections at '
                f'work; {100 * m["idle"]:.0f}% idle')


def consumed(bench, db, topic, group):
    name = 'semel_consume_processed_total'
    d = Daemon([bench.semel, 'consume', '--db', bench.server.url(db), '--brokers', bench.kafka.bootstrap,
                '--topic', topic, '--group', group, '--workers', str(WORKERS), '--sql',
                'INSERT INTO effect (key, payload) VALUES ($1, $2)'])
    try:
        d.wait_log(r'partitions assigned')
        while (first := d.metric(name)) == 0:
            time.sleep(0.002)
        begun, cpu = time.monotonic(), d.cpu()
        with Busy(bench.server, db) as busy:
            while (done := d.metric(name)) < ROWS:
                assert time.monotonic() < begun + 120, f'{done:.0f} of {ROWS} messages after 120 s'
                time.sleep(0.01)
            s = time.monotonic() - begun
        rows = done - first
        return {'per_s': rows / s, 'cpu_s': (d.cpu() - cpu) / rows * 100_000, 'rss_mb': peak_mb(d.pid),
                'batch': done / d.metric('semel_consume_batches_total'), **busy.of(rows)}
    finally:
        d.stop()

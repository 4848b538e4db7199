# SPDX-License-Identifier: Apache-2.0
"""`semel consume` on a real Kafka and a real PostgreSQL: each event has its effect once, whatever
happens in between (rules D1 to D5; O64 to O79)."""
import contextlib
import hashlib
import http.server
import json
import re
import signal
import threading
import urllib.request
import uuid

import psycopg2
import pytest

from support import Postgres, wait_until

pytestmark = pytest.mark.kafka

# apply() appends what it is told, unless the payload says otherwise.
SCHEMA = """
CREATE TABLE effect (n bigserial, id text, key text, payload text, topic text, headers jsonb);
CREATE TABLE acct (id int PRIMARY KEY, sum int NOT NULL DEFAULT 0);
INSERT INTO acct SELECT generate_series(1, 9);
CREATE TABLE mood (word text PRIMARY KEY);
CREATE TABLE tried (at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION apply(k text, p text, e text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE a int;
BEGIN
  IF p LIKE 'poison%' AND EXISTS (SELECT FROM mood WHERE word = 'strict') THEN
    RAISE EXCEPTION 'I do not like %', p;
  END IF;
  IF p LIKE 'kill%' AND EXISTS (SELECT FROM mood WHERE word = 'strict') THEN
    PERFORM pg_terminate_backend(pg_backend_pid());
    PERFORM pg_sleep(10);
  END IF;
  IF p LIKE 'move %' THEN
    FOREACH a IN ARRAY string_to_array(substr(p, 6), ',')::int[] LOOP
      UPDATE acct SET sum = sum + 1 WHERE id = a;
      PERFORM pg_sleep(0.05);
    END LOOP;
  END IF;
  INSERT INTO effect (id, key, payload) VALUES (e, k, p);
END $$;
"""
APPLY = 'SELECT apply($1, $2, $3)'


def event(name, value=None, key=None):
    """(key, value, headers); the id is made of the name."""
    eid = str(uuid.uuid5(uuid.NAMESPACE_OID, str(name)))
    return (key or f'k{name}', str(value if value is not None else name), [('event-id', eid)])


class World:
    def __init__(self, procs, build, kafka, pg, db, url):
        self.procs, self.build, self.kafka, self.pg, self.db, self.url = (procs, build, kafka, pg,
                                                                          db, url)
        self.group = 'g' + uuid.uuid4().hex[:8]
        pg.psql(db, SCHEMA)

    def start(self, topic, *more, sql=APPLY, group=None, wait=True, **kw):
        handler = ['--sql', sql] if sql else []
        p = self.procs.start([self.build.semel, 'consume', '--db', self.url, '--brokers',
                              self.kafka.bootstrap, '--topic', topic, '--group',
                              group or self.group, '--admin', '127.0.0.1:0', *handler, *more],
                             name='consume', **kw)
        if wait:
            p.wait_log(r'assigned', 30)
        return p

    def metric(self, p, name):
        port = re.search(r'admin listener on port (\d+)', p.err()).group(1)
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=5) as r:
            text = r.read().decode()
        found = re.findall(rf'(?m)^{name}(?:{{[^}}]*}})? (\S+)$', text)
        return sum(float(v) for v in found)

    def value(self, query):
        return self.pg.value(self.db, query)

    def effects(self):
        return self.value('SELECT count(*) FROM effect')

    def wait_effects(self, n, timeout=30):
        wait_until(lambda: self.effects() >= n, timeout, f'{n} effects')
        assert self.effects() == n

    def committed(self, topic, partitions=1, group=None):
        got = self.kafka.committed(group or self.group, topic, partitions)
        return sum(v for v in got.values() if v > 0)

    def wait_committed(self, topic, n, partitions=1, group=None):
        wait_until(lambda: self.committed(topic, partitions, group) == n, 20, f'offset {n}',
                   interval=0.2)

    def dead(self):
        return self.value('SELECT count(*) FROM semel.dead_letter')


@pytest.fixture
def world(procs, build, kafka, pg, pg_db, pg_store_url):
    return World(procs, build, kafka, pg, pg_db, pg_store_url)


def test_o66_an_event_and_its_effect_and_all_five_parameters(world):
    topic = world.kafka.new_topic(2)
    world.kafka.produce(topic, [('a', 'x', [('event-id', b'e-1'), ('bin', b'\x00\xff'), ('n', None)]),
                                (None, None, [('event-id', b'e-2')])])
    p = world.start(topic, sql='INSERT INTO effect (key, payload, id, topic, headers) '
                               'VALUES ($1, $2, $3, $4, $5)')
    world.wait_effects(2)
    with world.pg.connect(world.db) as c, c.cursor() as cur:
        cur.execute('SELECT id, key, payload, topic, headers FROM effect ORDER BY id')
        rows = cur.fetchall()
    assert rows[0][:4] == ('e-1', 'a', 'x', topic) and rows[1][:4] == ('e-2', None, None, topic)
    headers = rows[0][4] if not isinstance(rows[0][4], str) else json.loads(rows[0][4])
    assert headers == [['event-id', 'e-1'], ['bin', {'base64': 'AP8='}], ['n', None]]
    world.wait_committed(topic, 2, 2)
    assert p.terminate() == 0


def test_a_statement_that_does_not_prepare_stops_at_start(world):
    topic = world.kafka.new_topic()
    p = world.start(topic, sql='SELECT nonsense($1)', wait=False)
    assert p.wait(20) == 64
    assert 'nonsense' in p.err() and 'does not prepare' in p.err()
    p = world.start(topic, sql='COMMIT', wait=False)
    assert p.wait(20) == 64


def test_a_dead_topic_that_cannot_be_one_stops_at_start(world):
    """And not at the first dead event, which would wait for ever."""
    p = world.start(world.kafka.new_topic(), '--dead-topic', 'orders dead', wait=False)
    assert p.wait(20) == 64
    assert 'dead-letter topic' in p.err()


def duplicates_move_the_offset(world):
    topic = world.kafka.new_topic()
    events = [event(i) for i in range(20)]
    world.kafka.produce(topic, events + events[5:15] + events[:1])
    p = world.start(topic)
    world.wait_committed(topic, 31)
    assert world.effects() == 20 and world.dead() == 0
    assert world.metric(p, 'semel_consume_duplicates_total') == 11
    assert world.metric(p, 'semel_consume_processed_total') == 20
    assert p.terminate() == 0


def test_d1_o64_a_duplicate_is_a_success_and_the_offset_moves(world):
    duplicates_move_the_offset(world)


def test_d1_o64_also_where_the_server_speaks_german(procs, build, kafka, semel):
    """Another consumer once looked for the words "duplicate key"."""
    with contextlib.closing(Postgres({'lc_messages': "'de_DE.UTF-8'"}).learn('de_DE').start()) as pg:
        db = pg.new_database()
        assert semel('migrate', '--db', pg.url(db)).returncode == 0
        with pytest.raises(psycopg2.Error, match='existiert nicht'):
            pg.sql(db, 'SELECT * FROM nothing')
        duplicates_move_the_offset(World(procs, build, kafka, pg, db, pg.url(db)))


def test_d1_the_same_id_with_another_payload_is_an_alarm(world):
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1, 'one'), event(2, 'two'), event(1, 'other')])
    p = world.start(topic)
    world.wait_committed(topic, 3)
    assert world.effects() == 2
    assert world.value('SELECT count(*) FROM semel.inbox_alarm') == 1
    first = world.value("SELECT encode(first_hash, 'hex') FROM semel.inbox_alarm")
    assert first == hashlib.sha256(b'one').hexdigest()
    assert world.metric(p, 'semel_consume_alarms_total') == 1
    assert p.terminate() == 0


def test_d1_an_event_without_an_id_is_a_dead_letter_with_a_reason_once(world, semel):
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1), ('k', 'no id'), ('k', 'bad', [('event-id', b'\xff')]),
                                event(2)])
    p = world.start(topic, '--source', 'shop')
    world.wait_committed(topic, 4)
    assert world.effects() == 2 and world.dead() == 2
    assert p.terminate() == 0
    assert f' {topic}/0@' in semel('inbox', 'dead', 'list', '--db', world.url).out()
    out = semel('inbox', 'dead', 'list', '--json', '--db', world.url).out()
    assert {json.loads(line)['topic'] for line in out.splitlines()} == {topic}
    assert 'no header event-id' in out and 'is not UTF-8 text' in out
    q = world.start(topic, '--source', 'shop', '--consumer', world.group, group=world.group + 'b')  # all again
    world.wait_committed(topic, 4, group=world.group + 'b')
    assert world.effects() == 2 and world.dead() == 2
    assert q.terminate() == 0


def test_d1_an_id_inside_the_payload(world):
    topic = world.kafka.new_topic()
    body = json.dumps({'meta': {'id': 77}, 'x': 1})
    world.kafka.produce(topic, [('k', body), ('k', body), ('k', '{}')])
    p = world.start(topic, '--event-id-pointer', '/meta/id')
    world.wait_committed(topic, 3)
    assert world.effects() == 1 and world.dead() == 1
    assert world.value('SELECT event_id FROM semel.processed_event') == '77'
    assert p.terminate() == 0


def test_o67_two_consumers_of_one_event_apply_it_each(world):
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(i) for i in range(5)])
    a, b = world.start(topic, group=world.group + 'a'), world.start(topic, group=world.group + 'b')
    world.wait_effects(10)
    assert a.terminate() == 0 and b.terminate() == 0


def test_d2_two_consumers_meet_in_opposite_order_and_no_event_dies(world):
    """The handlers lock two accounts, in opposite order: one transaction is the victim, again and
    again, and both events are applied in the end."""
    one, two = world.kafka.new_topic(), world.kafka.new_topic()
    world.kafka.produce(one, [event(f'a{i}', 'move 1,2') for i in range(30)])
    world.kafka.produce(two, [event(f'b{i}', 'move 2,1') for i in range(30)])
    options = ('--attempts-max', '1', '--batch-rows', '4', '--consumer', 'c', '--source', 's')
    a = world.start(one, *options, group=world.group + 'a', wait=False)
    b = world.start(two, *options, group=world.group + 'b', wait=False)
    world.wait_effects(60, 90)
    assert world.dead() == 0
    assert world.value('SELECT sum(sum) FROM acct') == 120
    again = [world.metric(p, 'semel_consume_transient_total') for p in (a, b)]
    assert sum(again) > 0, 'the two never met'
    assert a.terminate() == 0 and b.terminate() == 0


def test_d3_o79_a_handler_that_always_fails_is_counted_across_crashes(world, semel):
    topic = world.kafka.new_topic(3)
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    events = [event(i) for i in range(60)]
    events[20] = event('p', 'poison')
    world.kafka.produce(topic, events)
    options = ('--attempts-max', '4')
    tries = 'SELECT coalesce(max(attempts), 0) FROM semel.inbox_attempt'
    crashes = 0
    for wanted in (1, 2):  # killed after its first, and after its second counted try
        p = world.start(topic, *options, wait=False)
        wait_until(lambda: world.value(tries) >= wanted or world.dead(), 40)
        p.kill()
        p.wait()
        crashes += world.dead() == 0
    assert crashes, 'no kill struck an event that was being tried'
    p = world.start(topic, *options)
    wait_until(lambda: world.dead() == 1, 60)
    world.wait_effects(59)
    assert world.value('SELECT attempts FROM semel.dead_letter') == 4
    assert 'I do not like poison' in world.value('SELECT reason FROM semel.dead_letter')
    assert world.value('SELECT count(*) FROM semel.inbox_attempt') == 0
    assert world.value('SELECT count(*) FROM semel.processed_event') == 60
    assert world.metric(p, 'semel_consume_dead_total') == 1
    world.wait_committed(topic, 60, 3)

    letter = str(world.value('SELECT id FROM semel.dead_letter'))
    assert semel('inbox', 'retry', letter, '--db', world.url).returncode == 0
    wait_until(lambda: world.value('SELECT state FROM semel.dead_letter') == 0 and
               world.value('SELECT attempts FROM semel.dead_letter') == 5, 20)
    p.wait_log('a dead letter failed again', 20)
    world.pg.psql(world.db, 'DELETE FROM mood')
    assert semel('inbox', 'retry', letter, '--db', world.url).returncode == 0
    world.wait_effects(60)
    wait_until(lambda: world.value('SELECT state FROM semel.dead_letter') == 2)
    r = semel('inbox', 'retry', letter, '--db', world.url)
    assert r.returncode == 65 and world.effects() == 60  # once
    assert p.terminate() == 0


def test_d3_a_handler_that_kills_its_backend_dies_too(world):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event(i) for i in range(9)] + [event('k', 'kill me')] +
                        [event(i) for i in range(10, 20)])
    p = world.start(topic, '--attempts-max', '3')
    wait_until(lambda: world.dead() == 1, 60)
    world.wait_effects(19)
    assert world.value('SELECT attempts FROM semel.dead_letter') == 3
    assert world.value('SELECT payload FROM semel.dead_letter').tobytes() == b'kill me'
    assert p.terminate() == 0


def test_d3_dead_events_go_to_a_topic_through_the_outbox(world):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event('p', 'poison', key='kk')])
    p = world.start(topic, '--attempts-max', '1', '--dead-topic', 'orders.dead')
    wait_until(lambda: world.dead() == 1, 30)
    with world.pg.connect(world.db) as c, c.cursor() as cur:
        cur.execute('SELECT topic, key, payload, headers::text FROM semel.outbox')
        ((to, key, payload, headers),) = cur.fetchall()
    assert (to, key, bytes(payload)) == ('orders.dead', 'kk', b'poison')
    assert 'dead-event-id' in headers and 'I do not like poison' in headers
    assert p.terminate() == 0


def test_d4_o74_lost_offsets_bring_everything_again_and_nothing_happens(world):
    topic = world.kafka.new_topic(3)
    world.kafka.produce(topic, [event(i) for i in range(500)])
    p = world.start(topic)
    world.wait_effects(500)
    assert p.terminate() == 0
    lost = world.group + 'lost'  # a group without offsets, of the same consumer
    q = world.start(topic, '--consumer', world.group, group=lost)
    world.wait_committed(topic, 500, 3, group=lost)
    assert world.effects() == 500
    assert world.metric(q, 'semel_consume_duplicates_total') == 500
    assert q.terminate() == 0


def test_d4_o77_a_zombie_that_wakes_has_no_second_effect_and_holds_nobody_up(world):
    """It is stopped in the middle of a transaction: its ids are recorded, nothing is committed."""
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1), event(2)])
    eid = event(1)[2][0][1]
    blocker = world.pg.connect(world.db, autocommit=False)
    cur = blocker.cursor()
    cur.execute('INSERT INTO semel.processed_event VALUES (%s, %s, %s)', (world.group, topic, eid))
    zombie = world.start(topic)
    waits = ("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
             "AND datname = current_database()")
    wait_until(lambda: world.value(waits) == 1, 20)
    zombie.stop()
    blocker.rollback()  # now the zombie's transaction holds the row, and idles
    blocker.close()
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE state = "
                                   "'idle in transaction' AND datname = current_database()") == 1)
    heir = world.start(topic)
    longest = 0.0
    def look():
        nonlocal longest
        waited = world.value("SELECT coalesce(max(extract(epoch FROM clock_timestamp() - "
                             "query_start)), 0)::float FROM pg_stat_activity WHERE "
                             "wait_event_type = 'Lock' AND datname = current_database()")
        longest = max(longest, waited)
        return world.effects() == 2
    wait_until(look, 60)
    assert longest < 3.5, 'the lock timeout is 2 s'
    zombie.cont()
    zombie.wait_log('lost|given up', 30)
    world.wait_committed(topic, 2)
    assert world.effects() == 2 and world.dead() == 0
    assert zombie.terminate() == 0 and heir.terminate() == 0


def test_o71_o72_o73_o76_rebalances_lose_and_double_nothing(world):
    topic = world.kafka.new_topic(6)
    n = 3000
    world.kafka.produce(topic, [event(i, key=f'k{i % 40}') for i in range(n)])
    running, struck = [world.start(topic, '--batch-rows', '20')], 0
    for i in range(6):
        running.append(world.start(topic, '--batch-rows', '20', wait=False))
        wait_until(lambda: world.effects() >= min(n, (i + 1) * n // 8), 60)
        gone = running.pop(0)
        gone.wait_log('admin listener on port', 30)  # it hears signals
        struck += world.effects() < n
        if i % 2:
            gone.kill()
            gone.wait()
        else:
            assert gone.terminate() == 0
    assert struck >= 2, 'the rebalances struck no unfinished work'
    world.wait_effects(n, 90)
    assert world.value('SELECT count(DISTINCT id) FROM effect') == n and world.dead() == 0
    for p in running:
        assert p.terminate() == 0
    # Of one key, in order: what was applied is sorted by the number it was produced with.
    assert world.value('SELECT count(*) FROM (SELECT payload::int - lag(payload::int) OVER '
                       '(PARTITION BY key ORDER BY n) AS d FROM effect) s WHERE d <= 0') == 0


@pytest.fixture
def own_world(procs, build, kafka, pg_own, semel):
    """On a PostgreSQL that the test may stop."""
    db = pg_own.new_database()
    url = pg_own.url(db)
    assert semel('migrate', '--db', url).returncode == 0
    return World(procs, build, kafka, pg_own, db, url)


def test_d2_a_database_that_goes_away_is_waited_for(own_world, kafka, pg_own):
    world = own_world
    topic = kafka.new_topic(2)
    kafka.produce(topic, [event(i) for i in range(200)])
    p = world.start(topic, '--attempts-max', '2', '--batch-rows', '5')
    wait_until(lambda: world.effects() > 0, 30)
    pg_own.stop('immediate')
    kafka.produce(topic, [event(i) for i in range(200, 400)])
    p.wait_log('the database is away', 20)  # it has tried, and said so
    pg_own.start()
    wait_until(lambda: world.effects() == 400, 60)
    p.wait_log('the database is back', 20)
    assert world.dead() == 0 and world.value('SELECT count(DISTINCT id) FROM effect') == 400
    assert p.terminate() == 0


def test_d2_a_database_that_went_amid_a_try_is_told_of_when_it_is_back(own_world, kafka, pg_own):
    """What works first then is the count of the next try."""
    world = own_world
    topic = kafka.new_topic()
    blocker = pg_own.connect(world.db)
    blocker.cursor().execute('BEGIN; LOCK TABLE effect IN ACCESS EXCLUSIVE MODE')
    kafka.produce(topic, [event(1)])
    p = world.start(topic)
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                                   "AND datname = current_database()") == 1, 30)
    pg_own.stop('immediate')
    blocker.close()
    p.wait_log('the database is away', 20)
    pg_own.start()
    world.wait_effects(1)
    p.wait_log('the database is back', 20)
    assert p.terminate() == 0


def test_d2_a_server_that_is_stopped_amid_a_try_makes_no_dead_letter(own_world, kafka, pg_own):
    """It says to the handler's session what it says to one that ends itself."""
    world = own_world
    topic = kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('slow')")
    kafka.produce(topic, [event(1)])
    p = world.start(topic, '--attempts-max', '1',
                    sql='SELECT apply($1, $2, $3), pg_sleep((SELECT count(*) * 600 FROM mood))')
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1, 30)
    assert world.value('SELECT attempts FROM semel.inbox_attempt') == 1
    world.pg.psql(world.db, 'DELETE FROM mood')
    pg_own.stop('fast')
    p.wait_log('the database is away', 20)
    pg_own.start()
    wait_until(lambda: world.effects() + world.dead() == 1, 30)
    assert world.dead() == 0
    assert p.terminate() == 0


def test_o70_events_past_their_retention_are_forgotten(world):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO semel.processed_event SELECT "
                            f"'{world.group}', 's', n::text, NULL, now() - interval '9 days' "
                            "FROM generate_series(1, 2500) n")
    world.kafka.produce(topic, [event(1)])
    p = world.start(topic, '--inbox-retention', '1h')
    wait_until(lambda: world.value('SELECT count(*) FROM semel.processed_event') == 1, 30)
    assert p.terminate() == 0


def consumed_long_ago(world):
    """A topic of 50 events that the group recorded nine days ago."""
    topic = world.kafka.new_topic(2)
    world.kafka.produce(topic, [event(i) for i in range(50)])
    p = world.start(topic)
    world.wait_effects(50)
    assert p.terminate() == 0
    world.pg.psql(world.db, "UPDATE semel.processed_event SET processed_at = now() - interval '9 days'")
    return topic


def test_o65_what_may_still_come_is_not_forgotten(world):
    """A consumer that was off for longer than the retention, and whose offsets are lost."""
    topic = consumed_long_ago(world)
    lost = world.group + 'lost'
    q = world.start(topic, '--inbox-retention', '1h', '--consumer', world.group, group=lost)
    world.wait_committed(topic, 50, 2, group=lost)
    wait_until(lambda: world.value('SELECT count(*) FROM semel.processed_event') == 0, 30)
    assert world.effects() == 50
    assert q.terminate() == 0


def test_d5_o65_one_member_does_not_forget_what_another_has_yet_to_read(world):
    topic = consumed_long_ago(world)
    blocker = world.pg.connect(world.db, autocommit=False)  # one partition is not read past its first event
    blocker.cursor().execute('DELETE FROM semel.processed_event WHERE event_id = %s', (event(0)[2][0][1],))
    options = ('--inbox-retention', '8d', '--consumer', world.group)
    lost = world.group + 'lost'
    members = [world.start(topic, *options, group=lost) for _ in range(2)]
    wait_until(lambda: [world.metric(m, 'semel_consume_partitions') for m in members] == [1, 1], 30)
    before = world.committed(topic, 2, lost)
    world.kafka.produce(topic, [event(i) for i in range(50, 70)])
    wait_until(lambda: world.committed(topic, 2, lost) > before, 30)
    wait_until(lambda: sum(world.metric(m, 'semel_consume_queued') > 0 for m in members) == 1, 30)
    (free,) = [m for m in members if world.metric(m, 'semel_consume_queued') == 0]

    def has_looked():
        """Letters are looked at before what may be forgotten, by the same thread."""
        world.pg.psql(world.db, "INSERT INTO semel.dead_letter (consumer, source, event_id, state, topic, "
                      "kafka_partition, kafka_offset, headers, attempts, reason) SELECT "
                      f"'{world.group}', 's', 'x', 1, 't', 0, 0, '[]', 1, 'why' FROM generate_series(1, 20)")
        return world.metric(free, 'semel_consume_letters_applied_total') > 2
    wait_until(has_looked, 30, interval=0.5)
    assert world.value("SELECT count(*) FROM semel.processed_event WHERE processed_at < now() - "
                       "interval '1 day'") == 50
    blocker.rollback()
    blocker.close()
    world.wait_committed(topic, 70, 2, lost)
    assert world.value("SELECT count(*) FROM effect WHERE payload <> ''") == 70
    for m in members:
        assert m.terminate() == 0


def test_d5_a_retention_shorter_than_the_topics_is_said(world):
    """A segment is deleted when its youngest event is old enough: the first one stays for both times."""
    topic = world.kafka.new_topic(config={'retention.ms': str(10 * 86400 * 1000), 'segment.ms': str(5 * 86400 * 1000)})
    p = world.start(topic)
    p.wait_log(f'warning: topic {topic} keeps its events for up to 360 h', 20)
    assert p.terminate() == 0


LOST = b'{"type":"https://semel.dev/problems/outcome-unknown"}'  # as a gateway says it


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers by what the body says, while `open` is set; keeps (key, body) of each request."""
    daemon_threads = True

    def __init__(self):
        self.seen, self.broken, self.answer, self.open = [], True, None, threading.Event()
        self.open.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length'])).decode()
                outer.seen.append((self.headers['Idempotency-Key'], body))
                outer.open.wait()
                status = 422 if body == 'refuse' else 503 if outer.broken else 200
                status, headers = outer.answer or (status, {})
                reply = b''
                if body == 'lost':
                    status, headers, reply = 409, {'Content-Type': 'application/problem+json'}, LOST
                self.send_response(status)
                for header in {'Content-Length': str(len(reply)), **headers}.items():
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass
        super().__init__(('127.0.0.1', 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_post_sends_one_key_until_there_is_an_answer(world):
    endpoint = Endpoint()
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1, 'one'), event(2, 'refuse'), event(3, 'three')])
    p = world.start(topic, '--post', f'http://127.0.0.1:{endpoint.server_port}/events',
                    '--attempts-max', '2', sql=None)
    wait_until(lambda: len(endpoint.seen) >= 2, 20)
    assert {k for k, b in endpoint.seen if b == 'one'} == {
        f'{topic}:{event(1)[2][0][1]}:{world.group}'}
    endpoint.broken = False
    world.wait_committed(topic, 3)
    assert world.value('SELECT count(*) FROM semel.processed_event') == 3
    assert world.dead() == 1 and [b for _, b in endpoint.seen].count('three') >= 1
    assert p.terminate() == 0
    endpoint.shutdown()


def test_post_takes_a_redirect_for_no_answer(world):
    """A proxy in front of the handler sends everybody to its login page."""
    endpoint = Endpoint()
    endpoint.answer = 302, {'Location': '/login'}
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1)])
    p = world.start(topic, '--post', f'http://127.0.0.1:{endpoint.server_port}/events',
                    '--attempts-max', '1', sql=None)
    for status in (302, 300, 307):
        endpoint.answer = status, {'Location': '/login'}
        asked = len(endpoint.seen)
        wait_until(lambda: len(endpoint.seen) > asked + 1, 30)  # one of them got this answer, and asked again
        assert world.value('SELECT count(*) FROM semel.processed_event') + world.dead() == 0, status
    endpoint.answer = 303, {'Location': '/done', 'Idempotency-Outcome': 'executed'}  # the handler's own
    world.wait_committed(topic, 1)
    assert world.dead() == 0
    assert p.terminate() == 0
    endpoint.shutdown()


def test_d2_o79_what_came_to_no_answer_is_not_counted_over_starts(world):
    """As when a service is deployed again and again while what it calls is away."""
    endpoint = Endpoint()
    endpoint.answer = 302, {}
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1)])
    options = ('--post', f'http://127.0.0.1:{endpoint.server_port}/events', '--attempts-max', '1')
    for _ in range(2):
        asked = len(endpoint.seen)
        p = world.start(topic, *options, sql=None)
        wait_until(lambda: len(endpoint.seen) > asked + 1 or world.dead(), 30)
        assert p.terminate() == 0
        assert world.value('SELECT attempts FROM semel.inbox_attempt') == 0
    endpoint.answer = None
    endpoint.broken = False
    p = world.start(topic, *options, sql=None)
    world.wait_committed(topic, 1)
    assert world.dead() == world.value('SELECT count(*) FROM semel.inbox_attempt') == 0
    assert p.terminate() == 0
    endpoint.shutdown()


def test_post_ends_with_the_event_that_it_is_at(world):
    """Those behind it are not sent on the last day of a program that could not record them."""
    endpoint = Endpoint()
    endpoint.broken = False
    topic = world.kafka.new_topic()
    options = ('--post', f'http://127.0.0.1:{endpoint.server_port}/events')
    world.kafka.produce(topic, [event(0, 'first')])
    p = world.start(topic, *options, sql=None)
    world.wait_committed(topic, 1)
    endpoint.open.clear()
    world.kafka.produce(topic, [event(i) for i in range(1, 17)])
    wait_until(lambda: len(endpoint.seen) == 2, 20)
    p.send(signal.SIGTERM)
    p.wait_log('draining')
    endpoint.open.set()
    assert p.wait(20) == 0
    assert len(endpoint.seen) == 2 == world.value('SELECT count(*) FROM semel.processed_event')
    endpoint.shutdown()


def test_d2_a_post_that_the_deadline_cuts_off_is_not_counted(world):
    endpoint = Endpoint()
    endpoint.broken = False
    endpoint.open.clear()
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1)])
    options = ('--post', f'http://127.0.0.1:{endpoint.server_port}/events', '--attempts-max', '1')
    p = world.start(topic, *options, '--shutdown-deadline', '2s', sql=None)
    wait_until(lambda: len(endpoint.seen) == 1, 20)
    assert world.value('SELECT attempts FROM semel.inbox_attempt') == 1
    assert p.terminate() == 75
    assert world.value('SELECT attempts FROM semel.inbox_attempt') == 0
    endpoint.open.set()
    p = world.start(topic, *options, sql=None)
    world.wait_committed(topic, 1)
    assert world.dead() == 0
    assert p.terminate() == 0
    endpoint.shutdown()


def test_d2_a_try_that_the_deadline_cuts_off_is_not_counted(world):
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1, 'move ' + ','.join(['1'] * 1000))])
    p = world.start(topic, '--attempts-max', '1', '--shutdown-deadline', '2s')
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE "
                                   "'SELECT apply%' AND state = 'active'") == 1, 20)
    assert world.value('SELECT attempts FROM semel.inbox_attempt') == 1
    assert p.terminate() == 75
    assert world.value('SELECT attempts FROM semel.inbox_attempt') == 0
    assert world.dead() == world.effects() == 0


def test_sigterm_finishes_what_runs_and_a_second_one_exits_at_once(world):
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [event(1, 'move ' + ','.join(['1'] * 20))])  # takes a second
    p = world.start(topic)
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE "
                                   "'SELECT apply%' AND state = 'active'") == 1, 20)
    assert p.terminate() == 0
    assert world.effects() == 1 and world.committed(topic) == 1
    world.kafka.produce(topic, [event(2, 'move ' + ','.join(['1'] * 100))])
    q = world.start(topic)
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE "
                                   "'SELECT apply%' AND state = 'active'") == 1, 20)
    q.send(signal.SIGTERM)
    q.wait_log('draining')
    q.send(signal.SIGTERM)
    assert q.wait(5) == 128 + signal.SIGTERM


def test_a_topic_that_does_not_exist_yet_is_waited_for(world):
    topic = f'later-{uuid.uuid4().hex[:8]}'
    p = world.start(topic, '--kafka', 'topic.metadata.refresh.interval.ms=500', wait=False)
    p.wait_log('consuming')
    world.kafka.create_topic(topic)
    world.kafka.produce(topic, [event(1)])
    world.wait_effects(1, 40)
    assert p.terminate() == 0


def test_settings_come_from_a_file_and_options_replace_them(world, tmp):
    topic, other = world.kafka.new_topic(), world.kafka.new_topic()
    (tmp / 'consume.yaml').write_text(
        f'db: "{world.url}"\nbrokers: "{world.kafka.bootstrap}"\ntopics: "{other}"\n'
        f'group: "{world.group}"\nsql: "{APPLY}"\nadmin: "127.0.0.1:0"\n')
    world.kafka.produce(other, [event('not this one')])
    world.kafka.produce(topic, [event('this one')])
    p = world.procs.start([world.build.semel, 'consume', '--config', str(tmp / 'consume.yaml'), '--topic',
                           topic], name='consume')
    world.wait_effects(1)
    assert world.value('SELECT payload FROM effect') == 'this one'
    assert p.terminate() == 0

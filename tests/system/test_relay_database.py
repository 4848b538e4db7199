# SPDX-License-Identifier: Apache-2.0
"""What others do in the relay's database: transactions that commit late, that stay open, that end its
sessions; settings that are not ours; relays that start at once."""
import threading

import psycopg2
import pytest

from support import wait_until
from support.relay import Outbox, Relay, drained, in_order, lost_nothing

pytestmark = pytest.mark.kafka


def test_o1_o2_o5_what_commits_late_is_published_late(outbox, start_relay, kafka, pg_store_url):
    """The lower id commits after the higher one was published, and the relay had another start between."""
    topic = kafka.new_topic(1)
    early = psycopg2.connect(pg_store_url)
    early.cursor().execute('SELECT semel.publish(%s, %s, %s)', (topic, 'a', b'early'))
    outbox.add(topic, [('b', b'late')])
    relay = start_relay()
    wait_until(lambda: kafka.values(topic) == [b'late'])  # while the other transaction is open
    drained(relay)
    relay = start_relay()
    wait_until(lambda: relay.metric('semel_relay_owned_slots') == 16)
    early.commit()
    early.close()
    outbox.wait_empty()
    drained(relay)
    assert kafka.values(topic) == [b'late', b'early']


def test_o30_relays_that_start_at_once_share(outbox, procs, build, pg_store_url, kafka):
    topic = kafka.new_topic(2)
    outbox.fill(topic, 4000)
    relays = [Relay(procs, build, pg_store_url, kafka.bootstrap, name=f'relay{i}', wait=False) for i in range(4)]
    for r in relays:
        r.port = int(r.p.wait_log(r'admin on port (\d+)', 30).group(1))
    wait_until(lambda: [r.metric('semel_relay_owned_slots') for r in relays] == [4] * 4, 30)
    outbox.wait_empty()
    lost_nothing(*relays)
    drained(*relays)
    assert in_order(kafka.consume_all(topic)) == (4000, 0)


@pytest.mark.parametrize('mode', ['owned', 'single', 'two-phase'])
def test_o49_o55_sessions_that_the_server_ends_lose_nothing(outbox, start_relay, kafka, mode):
    """Each of them, again and again, wherever its transaction is."""
    topic = kafka.new_topic(3)
    outbox.fill(topic, 6000)
    relay = start_relay(mode=mode, batch_rows=50, stuck_after='1s', attempts_max=1)
    struck = 0
    for _ in range(8):
        at = outbox.count()
        if at == 0:
            break
        wait_until(lambda: outbox.one(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name LIKE 'semel relay lane%%' AND datname = current_database()") > 0)
        struck += 1
        wait_until(lambda: outbox.count() < at)  # it goes on
    assert struck > 1
    outbox.wait_empty(90)
    assert relay.rows('dead') == 0
    drained(relay)
    assert in_order(kafka.consume_all(topic))[0] == 6000


@pytest.mark.parametrize('mode', ['owned', 'single', 'two-phase', 'exactly-once'])
def test_o49_marks_that_deadlock_are_made_again(outbox, start_relay, kafka, mode):
    """The first marks fall to deadlocks, then to serialisation failures: nobody's fault, and no try."""
    outbox.sql('''CREATE SEQUENCE semel.trips;
        CREATE FUNCTION semel.trip() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE n bigint := nextval('semel.trips');
        BEGIN
            IF n <= 5 THEN RAISE SQLSTATE '40P01'; ELSIF n <= 10 THEN RAISE SQLSTATE '40001'; END IF;
            RETURN NULL;
        END$$;
        CREATE TRIGGER trip BEFORE DELETE ON semel.outbox EXECUTE FUNCTION semel.trip()''')
    topic = kafka.new_topic(2)
    outbox.fill(topic, 500)
    relay = start_relay(mode=mode, batch_rows=100, attempts_max=1, stuck_after='1s')
    outbox.wait_empty()
    assert outbox.one('SELECT last_value FROM semel.trips') > 10
    assert relay.rows('dead') == relay.rows('retried') == 0
    assert relay.metric('semel_relay_changed_rows_total') == 0
    drained(relay)
    assert in_order(kafka.consume_all(topic)) == (500, 0)


def read_only(server):
    server.sql('postgres', 'ALTER SYSTEM SET default_transaction_read_only = on')
    server.sql('postgres', 'SELECT pg_reload_conf()')
    wait_until(lambda: server.value('postgres', 'SHOW default_transaction_read_only') == 'on')


def test_o56_a_server_that_is_read_only_for_a_while(procs, build, semel, pg_own, kafka):
    db = pg_own.new_database()
    assert semel('migrate', '--db', pg_own.url(db)).returncode == 0
    outbox, topic = Outbox(pg_own.url(db)), kafka.new_topic(2)
    outbox.fill(topic, 10000)
    relay = Relay(procs, build, pg_own.url(db), kafka.bootstrap, batch_rows=50, attempts_max=1, slot_lease='1s')
    wait_until(lambda: outbox.count() < 9500)
    read_only(pg_own)
    assert outbox.one("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                      "WHERE application_name LIKE 'semel relay%%'") > 0
    relay.p.wait_log('takes no writes')
    wait_until(lambda: outbox.one('SELECT max(lease_until) < clock_timestamp() FROM semel.relay_member'), 20)
    wait_until(lambda: not relay.ready(), 20, '/readyz says so')
    left = outbox.count()
    assert left > 0, 'the fault struck no unfinished work'
    pg_own.sql('postgres', 'ALTER SYSTEM RESET default_transaction_read_only')
    pg_own.sql('postgres', 'SELECT pg_reload_conf()')
    outbox.wait_empty()
    wait_until(relay.ready, 20)
    assert relay.rows('dead') == 0
    drained(relay)
    outbox.close()
    distinct, duplicates = in_order(kafka.consume_all(topic))
    assert distinct == 10000 and duplicates <= 4 * 50


def test_o56_of_two_hosts_the_one_that_takes_writes(procs, build, semel, outbox, pg, pg_db, pg_own, kafka):
    """The first one has the same tables, and is read-only."""
    pg_own.sql('postgres', f'CREATE DATABASE {pg_db}')
    assert semel('migrate', '--db', pg_own.url(pg_db)).returncode == 0
    read_only(pg_own)
    url = f'postgres://postgres@/{pg_db}?host={pg_own.dir},{pg.dir}&port={pg_own.port},{pg.port}'
    topic = kafka.new_topic(1)
    outbox.fill(topic, 100)
    relay = Relay(procs, build, url, kafka.bootstrap)
    outbox.wait_empty()
    drained(relay)
    assert in_order(kafka.consume_all(topic)) == (100, 0)
    r = semel('run', '--db', url, '--key', 'k', '--', 'true')
    assert r.returncode == 0, r.logs()
    r = semel('keys', 'list', '--json', '--db', url)
    assert r.returncode == 0 and len(r.out().splitlines()) == 1, r.logs()
    count = 'SELECT count(*) FROM semel.command'
    assert (pg.value(pg_db, count), pg_own.value(pg_db, count)) == (1, 0)


def test_o43_an_old_transaction_is_shown_and_delivery_goes_on(outbox, start_relay, kafka, pg_store_url):
    topic = kafka.new_topic(1)
    old = psycopg2.connect(pg_store_url)
    old.set_session(isolation_level='REPEATABLE READ')
    old.cursor().execute('SELECT count(*) FROM semel.outbox')
    relay = start_relay()
    for i in range(10):
        outbox.fill(topic, 500)
        outbox.wait_empty()
    wait_until(lambda: relay.metric('semel_outbox_oldest_transaction_seconds') > 0, 40)
    drained(relay)
    old.close()
    assert len(kafka.values(topic)) == 5000


def test_o46_o48_kept_rows_are_deleted_while_the_relay_is_busy(outbox, start_relay, kafka):
    topic = kafka.new_topic(1)
    relay = start_relay(done='keep', keep='1s', batch_rows=50)
    stop = threading.Event()

    def write():
        mine = Outbox(outbox.conn.dsn)
        while not stop.is_set():
            mine.fill(topic, 500)
        mine.close()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: relay.metric('semel_relay_pruned_rows_total') > 500, 60)
        assert outbox.count('PENDING') > 0  # it never was idle
    finally:
        stop.set()
        writer.join()
    relay.p.kill()


def test_o50_a_database_that_defaults_to_serializable(outbox, start_relay, kafka):
    name = outbox.one('SELECT current_database()')
    outbox.sql(f'ALTER DATABASE "{name}" SET default_transaction_isolation = serializable')
    topic = kafka.new_topic(2)
    outbox.fill(topic, 5000)
    one, two = (start_relay(name=n, batch_rows=200, attempts_max=1) for n in ('relay1', 'relay2'))
    outbox.wait_empty()
    assert one.rows('dead') + two.rows('dead') + one.rows('retried') + two.rows('retried') == 0
    lost_nothing(one, two)
    drained(one, two)
    assert in_order(kafka.consume_all(topic)) == (5000, 0)

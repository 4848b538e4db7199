# SPDX-License-Identifier: Apache-2.0
"""`semel consume` on a PostgreSQL that is not as it should be, or becomes another one meanwhile (rules B7, D2, D3)."""
import contextlib

import pytest

from support.wait import wait_until
from test_consume import World, event
from test_consume_letters import letter_states

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(procs, build, kafka, pg, pg_db, pg_store_url):
    return World(procs, build, kafka, pg, pg_db, pg_store_url)


@contextlib.contextmanager
def standby_is_away(pg):
    """What is read is answered; a COMMIT is written here, and waits for a standby that is not there."""
    def have(statement, names):
        pg.sql('postgres', statement)
        pg.sql('postgres', 'SELECT pg_reload_conf()')
        wait_until(lambda: pg.value('postgres', "SELECT current_setting('synchronous_standby_names')") == names, 20)
    have("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", 'nobody')
    try:
        yield
    finally:
        have('ALTER SYSTEM RESET synchronous_standby_names', '')


def cut_a_commit(world, words):
    """A statement with these words gets no answer to its COMMIT, which stands all the same."""
    waits = f"FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%{words}%'"
    wait_until(lambda: world.value(f'SELECT count(*) {waits}') == 1, 30)
    assert world.value(f'SELECT count(pg_terminate_backend(pid)) {waits}') == 1


def test_d2_a_count_without_an_answer_uses_no_try_up(world):
    """A good event would be buried, with no try ever made."""
    topic = world.kafka.new_topic()
    p = world.start(topic, '--attempts-max', '1')
    with standby_is_away(world.pg):
        world.kafka.produce(topic, [event(1)])
        for _ in range(2):
            cut_a_commit(world, 'inbox_attempt')
            wait_until(lambda: world.value('SELECT coalesce(max(attempts), 0) FROM semel.inbox_attempt') > 0, 20)
        assert world.value('SELECT attempts FROM semel.inbox_attempt') == 1
        assert world.effects() == 0
    world.wait_effects(1)
    assert world.dead() == 0
    assert p.terminate() == 0


def test_d2_a_letter_whose_take_has_no_answer_is_in_retry_again(world):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event(1, 'poison')])
    p = world.start(topic, '--attempts-max', '1')
    wait_until(lambda: world.dead() == 1, 30)
    world.wait_committed(topic, 1)
    world.pg.psql(world.db, 'DELETE FROM mood')
    with standby_is_away(world.pg):
        world.pg.psql(world.db, 'SET synchronous_commit = local; UPDATE semel.dead_letter SET state = 1')
        cut_a_commit(world, 'attempts = d.attempts')
        wait_until(lambda: letter_states(world) == '0', 20)
        assert world.effects() == 0
    wait_until(lambda: letter_states(world) == '2', 30)
    assert world.effects() == 1
    assert p.terminate() == 0


def test_d2_a_function_that_is_replaced_costs_no_event(world):
    """A statement that is prepared before its function has another type of result fails until it is prepared anew."""
    topic = world.kafka.new_topic()
    p = world.start(topic, '--attempts-max', '1', '--workers', '1')
    world.kafka.produce(topic, [event(0)])
    world.wait_effects(1)
    world.pg.psql(world.db, """
        BEGIN;
        ALTER FUNCTION apply RENAME TO apply_it;
        CREATE FUNCTION apply(k text, p text, e text) RETURNS int LANGUAGE sql AS
            'SELECT apply_it($1, $2, $3); SELECT 1';
        COMMIT""")
    world.kafka.produce(topic, [event(i) for i in range(1, 11)])
    world.wait_effects(11)
    assert world.dead() == 0
    assert world.metric(p, 'semel_consume_failed_tries_total') == 0
    assert world.metric(p, 'semel_consume_transient_total') > 0, 'nothing was stale'
    assert p.terminate() == 0


def test_a_database_that_cannot_hold_any_text_is_refused_at_start(procs, build, kafka, pg, semel):
    """An event whose id it has no letters for would stop its partition, for ever."""
    db = pg.new_database("ENCODING 'LATIN1' TEMPLATE template0")
    world = World(procs, build, kafka, pg, db, pg.url(db))
    assert semel('migrate', '--db', world.url).returncode == 0
    p = world.start(kafka.new_topic(), wait=False)
    assert p.wait(20) == 69
    assert "encoding is LATIN1" in p.err() and "ENCODING 'UTF8'" in p.err()
    pg.drop_database(db)

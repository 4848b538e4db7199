# SPDX-License-Identifier: Apache-2.0
"""Dead letters that an operator wants applied by `semel consume`: each is tried once and has an end, and none holds
another up (rules D2, D3)."""
import pytest

from support.wait import wait_until
from test_consume import Endpoint, World, event

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(procs, build, kafka, pg, pg_db, pg_store_url):
    return World(procs, build, kafka, pg, pg_db, pg_store_url)


def letter_states(world):
    return world.value("SELECT string_agg(state::text, ' ' ORDER BY id) FROM semel.dead_letter")


def test_post_letters_have_a_key_each_and_those_that_fail_hold_nobody_up(world, semel):
    endpoint = Endpoint()
    endpoint.broken = False
    topic = world.kafka.new_topic()
    world.kafka.produce(topic, [('k', 'lost'), event(1, 'refuse'), ('k', 'same'), ('k', 'same')])
    p = world.start(topic, '--post', f'http://127.0.0.1:{endpoint.server_port}/events',
                    '--attempts-max', '1', sql=None)
    wait_until(lambda: world.dead() == 4, 20)
    assert semel('inbox', 'retry', 'all', '--db', world.url).returncode == 0
    wait_until(lambda: letter_states(world) == '1 0 2 2', 20)
    assert world.value('SELECT max(attempts) FROM semel.dead_letter') == 2
    assert '422' in world.value('SELECT reason FROM semel.dead_letter WHERE attempts = 2')
    assert len({k for k, b in endpoint.seen if b == 'same'}) == 2, 'the other side takes one for the other'
    lost = str(world.value('SELECT id FROM semel.dead_letter WHERE state = 1'))
    assert semel('inbox', 'discard', lost, '--reason', 'lost', '--db', world.url).returncode == 0
    assert letter_states(world) == '3 0 2 2'
    assert len({k for k, b in endpoint.seen if b == 'lost'}) == 1
    assert p.terminate() == 0
    endpoint.shutdown()


def test_d3_a_letter_that_kills_its_backend_is_dead_again(world, semel):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event(1, 'kill me'), event(2, 'poison')])
    p = world.start(topic, '--attempts-max', '1')
    wait_until(lambda: world.dead() == 2, 30)
    assert semel('inbox', 'retry', 'all', '--db', world.url).returncode == 0
    p.wait_log('a dead letter failed again: .*connection', 30)
    p.wait_log('a dead letter failed again: .*I do not like poison', 30)
    assert letter_states(world) == '0 0'
    assert world.value('SELECT reason FROM semel.dead_letter ORDER BY id LIMIT 1') == (
        'its last try did not come to an end')
    world.pg.psql(world.db, 'DELETE FROM mood')
    assert semel('inbox', 'retry', 'all', '--db', world.url).returncode == 0
    world.wait_effects(2)
    assert p.terminate() == 0


def test_d3_a_letter_whose_try_kills_the_consumer_is_dead_again(world, semel):
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event(1, 'poison')])
    p = world.start(topic, '--attempts-max', '1')
    wait_until(lambda: world.dead() == 1, 30)
    blocker = world.pg.connect(world.db, autocommit=False)
    blocker.cursor().execute('LOCK TABLE mood IN ACCESS EXCLUSIVE MODE')
    assert semel('inbox', 'retry', 'all', '--db', world.url).returncode == 0
    wait_until(lambda: world.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                                   "AND datname = current_database()") == 1, 20)
    p.kill()
    p.wait()
    blocker.close()
    assert letter_states(world) == '0'
    assert world.value('SELECT attempts FROM semel.dead_letter') == 2


def test_d2_a_letter_that_waits_for_a_lock_holds_nobody_up(world, semel):
    """It is in RETRY until it works, and its tries are not counted."""
    topic = world.kafka.new_topic()
    world.pg.psql(world.db, "INSERT INTO mood VALUES ('strict')")
    world.kafka.produce(topic, [event(1, 'poison move'), event(2, 'poison')])
    p = world.start(topic, '--attempts-max', '1', sql='SELECT apply($1, CASE WHEN EXISTS (SELECT FROM mood) THEN '
                                                      "$2 WHEN $2 = 'poison' THEN 'x' ELSE 'move 1' END, $3)")
    wait_until(lambda: world.dead() == 2, 30)
    world.pg.psql(world.db, 'DELETE FROM mood')
    blocker = world.pg.connect(world.db, autocommit=False)
    blocker.cursor().execute('UPDATE acct SET sum = sum WHERE id = 1')
    assert semel('inbox', 'retry', 'all', '--db', world.url).returncode == 0
    wait_until(lambda: letter_states(world) in ('0 2', '1 2'), 30)
    wait_until(lambda: letter_states(world) == '1 2', 30)
    assert world.value('SELECT attempts FROM semel.dead_letter ORDER BY id LIMIT 1') == 1
    blocker.rollback()
    blocker.close()
    world.wait_effects(2)
    assert p.terminate() == 0

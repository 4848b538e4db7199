# SPDX-License-Identifier: Apache-2.0
"""`semel run` when something dies: its parent, both, or the store (rules A5, A10)."""
import os
import signal
import sqlite3

import pytest

from support import Store, wait_until
from test_run_once import ERR, OUT, Job


@pytest.fixture
def job(build, procs, tmp, store_url):
    return Job(build.semel, procs, tmp, store_url)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
        return f.read().rsplit(')', 1)[1].split()[0] != 'Z'


def child_of(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as f:
        return int(f.read().split()[0])


def test_a10_sigkill_of_both_is_unknown_and_not_run_again(job, store):
    p = job.start()
    job.running()
    child = child_of(p.pid)
    p.kill()
    wait_until(lambda: not alive(child), what='the command died with its parent')
    assert job.run().returncode == 75  # the lease is not over yet: nobody knows that it died
    assert 'its holder is gone' in store.keys('show', job.key).stdout
    store.wait_lease_over(job.key)
    assert [r['key'] for r in store.rows('--stuck')] == [job.key]
    r = job.run()
    assert r.returncode == 76 and 'semel keys resolve daily-report' in r.err()
    assert job.run('--wait', '30s').returncode == 76
    assert store.row(job.key)['state'] == 'UNKNOWN'
    assert job.effects() == 1


def test_a10_on_unknown_retry_runs_it_again(job, store):
    p = job.start('--on-unknown', 'retry')
    job.running()
    p.kill()
    store.wait_lease_over(job.key)
    assert job.run().returncode == 76  # a caller that says hold does not take over (A5)


def test_a5_a_takeover_needs_both_to_say_retry(job, store):
    p = job.start('--on-unknown', 'retry')
    job.running()
    first = store.row(job.key)
    p.kill()
    again = job.start('--on-unknown', 'retry', '--wait', '30s')
    job.running(2)
    job.go()
    assert again.wait() == 3 and (again.out_bytes(), again.err()) == (OUT, ERR)
    assert store.row(job.key)['token'] > first['token']
    assert job.effects() == 2  # at least once: that is what retry means


def test_idempotent_runs_again_also_from_unknown(job, store):
    """The command dedupes by itself, so running it again is the way to know (A5)."""
    p = job.start()
    job.running()
    p.kill()
    store.wait_lease_over(job.key)
    assert job.run().returncode == 76 and store.row(job.key)['state'] == 'UNKNOWN'
    assert job.run('--idempotent').returncode == 76  # the row's claim did not say so

    twin = Job(job.semel, job.procs, job.effects_file.parent, store.url, key='other')
    p = twin.start('--idempotent')
    twin.running(2)
    p.kill()
    store.wait_lease_over('other')
    assert twin.run().returncode == 76 and store.row('other')['state'] == 'UNKNOWN'
    again = twin.start('--idempotent')
    twin.running(3)
    twin.go()
    assert again.wait() == 3 and store.row('other')['state'] == 'COMPLETED'


# The command's shell dies with its parent, but what it started lives on and holds the lock.
ORPHAN = '(echo x >> {e}; read _ < {go}) & echo $! > {d}/orphan; wait'


@pytest.mark.parametrize('policy', ['hold', 'retry'])
def test_a10_while_a_descendant_lives_nobody_takes_over(build, procs, tmp, store, policy):
    job = Job(build.semel, procs, tmp, store.url, script=ORPHAN)
    p = job.start('--on-unknown', policy)
    job.running()
    orphan = int(wait_until((tmp / 'orphan').read_text))
    p.kill()
    store.wait_lease_over(job.key)
    assert alive(orphan)
    assert job.run('--on-unknown', policy).returncode == 75
    # nor another user of this host, whose lock files are elsewhere
    other = job.run('--on-unknown', policy, env={'SEMEL_STATE_DIR': tmp / 'other'})
    assert other.returncode == (75 if policy == 'retry' else 76)
    r = store.keys('resolve', job.key, '--not-executed', '--reason', 'r', '--yes')
    assert r.returncode == 75 and 'still runs on this host' in r.stderr
    assert 'alive on this host' in store.keys('show', job.key).stdout
    assert job.effects() == 1
    os.kill(orphan, signal.SIGKILL)
    wait_until(lambda: not alive(orphan))
    r = store.keys('resolve', job.key, '--not-executed', '--reason', 'looked', '--yes')
    assert r.returncode == 0, r.stderr


# It ends, and leaves something at work behind.
BEHIND = ('(echo x >> {e}; read _ < {go}) > /dev/null 2>&1 & echo $! > {d}/behind; '
          'until [ -e {d}/end ]; do sleep 0.05; done')


def test_a10_a_result_that_is_not_recorded_leaves_the_lock_to_those_who_live(build, procs, tmp):
    store = Store(build, f'sqlite:{tmp}/s.db')
    job = Job(build.semel, procs, tmp, store.url, script=BEHIND)
    p = job.start('--on-unknown', 'retry')
    job.running()
    behind = int(wait_until((tmp / 'behind').read_text))
    writer = sqlite3.connect(tmp / 's.db', isolation_level=None, timeout=20)
    writer.execute('BEGIN IMMEDIATE')
    (tmp / 'end').touch()
    p.wait_log('not recorded yet', timeout=60)
    p.terminate()
    assert p.wait() == 0 and 'THE RESULT IS NOT RECORDED' in p.err()
    writer.execute('ROLLBACK')
    writer.close()
    store.wait_lease_over(job.key)
    assert alive(behind)
    assert job.run('--on-unknown', 'retry').returncode == 75
    r = store.keys('resolve', job.key, '--not-executed', '--reason', 'r', '--yes')
    assert r.returncode == 75 and 'still runs on this host' in r.stderr
    assert 'alive on this host' in store.keys('show', job.key).stdout and job.effects() == 1
    os.kill(behind, signal.SIGKILL)
    wait_until(lambda: not alive(behind))
    assert job.run('--on-unknown', 'hold').returncode == 76


def test_a10_stopped_and_late_resolves_itself(job, store, tmp):
    """SIGSTOP of semel beyond its lease: others say UNKNOWN; when it wakes, its own result ends
    that, since nobody else decided."""
    p = job.start()
    job.running()
    p.stop()
    store.wait_lease_over(job.key)
    elsewhere = {'SEMEL_STATE_DIR': tmp / 'elsewhere'}  # as if from another host: no lock is seen
    assert job.run(env=elsewhere).returncode == 76
    p.cont()
    p.wait_log('THE CLAIM IS LOST')
    job.go()
    assert p.wait() == 3
    assert store.row(job.key)['state'] == 'COMPLETED'
    assert job.run(env=elsewhere).out_bytes() == OUT
    assert job.effects() == 1


def test_a2_stopped_and_late_after_an_operator_decided(job, store, tmp):
    p = job.start()
    job.running()
    p.stop()
    store.wait_lease_over(job.key)
    host = 'host=elsewhere pid=1 boot=b lock=/l'
    store.set_holder(job.key, host)  # so that an operator may --force
    r = store.keys('resolve', job.key, '--executed', '--status', '7', '--reason', 'seen', '--yes',
                   '--force')
    assert r.returncode == 0, r.stderr
    p.cont()
    job.go()
    assert p.wait() == 3  # its own caller gets what it did
    assert 'THE RESULT IS NOT RECORDED' in p.err()
    assert job.run().returncode == 7
    assert job.effects() == 1


# -- the store goes away -----------------------------------------------------------------------

@pytest.fixture
def own(build, pg_own, semel):
    url = pg_own.url(pg_own.new_database())
    assert semel('migrate', '--db', url).returncode == 0
    return Store(build, url)


def test_b10_a_store_that_is_down_runs_nothing(build, procs, tmp, pg_own, own):
    job = Job(build.semel, procs, tmp, own.url)
    pg_own.stop()
    r = job.run(timeout=20)
    assert r.returncode == 69 and job.effects() == 0
    assert r.err().count('\n') == 1 and 'cannot be reached' in r.err()
    pg_own.start()
    p = job.start()
    job.running()
    job.go()
    assert p.wait() == 3


def test_b10_the_result_is_recorded_when_the_store_is_back(build, procs, tmp, pg_own, own):
    job = Job(build.semel, procs, tmp, own.url)
    p = job.start()
    job.running()
    pg_own.stop()
    job.go()
    p.wait_log('not recorded yet', timeout=30)
    assert p.alive()
    pg_own.start()
    assert p.wait() == 3
    assert 'THE RESULT IS NOT RECORDED' not in p.err()
    assert all(line.startswith(('semel: ', 'warn')) for line in p.err().splitlines()), p.err()
    assert own.row(job.key)['state'] == 'COMPLETED'
    assert (r := job.run()).returncode == 3 and r.out_bytes() == OUT
    assert job.effects() == 1


def test_b10_the_command_goes_on_while_the_store_is_away(build, procs, tmp, pg_own, own):
    job = Job(build.semel, procs, tmp, own.url)
    p = job.start('--lease', '12s')
    job.running()
    pg_own.stop()
    p.wait_log('could not be renewed', timeout=30)
    pg_own.start()
    p.wait_log('renewed again', timeout=30)
    assert not own.row(job.key)['lease_over']
    job.go()
    assert p.wait() == 3 and own.row(job.key)['state'] == 'COMPLETED'


def test_a4_a_claim_that_was_born_expired_is_not_started(build, procs, tmp, pg_own, own):
    """The table is locked for longer than the lease: the claim comes back too late.  Whatever
    happens then, the command starts with a living lease or not at all."""
    job = Job(build.semel, procs, tmp, own.url)
    conn = pg_own.connect(own.url.split('/')[3].split('?')[0], autocommit=False)
    conn.cursor().execute('LOCK TABLE semel.command IN ACCESS EXCLUSIVE MODE')
    p = job.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    db = own.url.split('/')[3].split('?')[0]

    def claim_waited():
        return pg_own.value(db, waiting) > 0 or not p.alive()
    wait_until(claim_waited, 20, 'the claim waits')
    if p.alive():
        start = pg_own.value(db, 'SELECT extract(epoch FROM clock_timestamp())::float8')
        wait_until(lambda: not p.alive() or pg_own.value(
            db, 'SELECT extract(epoch FROM clock_timestamp())::float8') > start + 1.5, 20)
    conn.rollback()
    conn.close()
    wait_until(lambda: job.effects() == 1 or not p.alive(), 20, 'started or given up')
    if p.alive():
        row = own.row(job.key)
        assert row['state'] == 'IN_FLIGHT' and not row['lease_over']
        job.go()
        assert p.wait() == 3
    else:
        assert p.returncode in (69, 75) and job.effects() == 0

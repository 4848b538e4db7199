# SPDX-License-Identifier: Apache-2.0
"""`semel keys`: looking, and the operator's verbs with their guards and audit (A5b, A10, A11)."""
import getpass
import json
import os
import pty
import subprocess

import pytest

from support import wait_until

ELSEWHERE = 'host=elsewhere pid=4711 boot=b lock=/l'


@pytest.fixture
def stuck(build, procs, tmp, store):
    """A key whose holder died in the middle, lease over.  Its command: one effect, then a pause."""
    def make(key='daily-report', *options):
        effects = tmp / f'effects-{key}'
        argv = [build.semel, 'run', key, '--db', store.url, '--lease', '1s', *options, '--', 'sh',
                '-c', f'echo x >> {effects}; [ -e {tmp}/quick ] || exec sleep 1000; echo done']
        p = procs.start(argv, name='run')
        wait_until(lambda: effects.exists() and effects.read_text(), 20, 'the command runs')
        p.kill()
        store.wait_lease_over(key)
        make.effects = lambda: effects.read_text().count('x')
        make.again = lambda: procs.run(argv, name='again')
        (tmp / 'quick').touch()
        return store.row(key)
    return make


def test_a5b_executed_with_a_reply(stuck, store, tmp):
    row = stuck()
    (tmp / 'body').write_bytes(b'the report\0\n')
    r = store.keys('resolve', row['key'], '--executed', '--status', '3', '--body-file',
                   str(tmp / 'body'), '--reason', 'mail 77 went out', '--attempt', row['attempt'])
    assert (r.returncode, r.stdout) == (0, ''), r.stderr
    again = stuck.again()
    assert (again.returncode, again.out_bytes()) == (3, b'the report\0\n')
    assert stuck.effects() == 1
    after = store.row(row['key'])
    assert after['state'] == 'COMPLETED' and after['token'] > row['token']
    assert after['attempt'] != row['attempt']
    assert len(store.audit()) == 1
    verb, who, reason = store.audit()[0]
    assert 'executed' in verb and 'not' not in verb and reason == 'mail 77 went out'
    assert who == f'{getpass.getuser()}@{os.uname().nodename}' or os.environ.get('SUDO_USER')


def test_a5b_executed_without_a_reply(stuck, store):
    row = stuck()
    assert store.keys('resolve', row['key'], '--executed', '--reason', 'r', '--yes').returncode == 0
    again = stuck.again()
    assert again.returncode == 0 and again.out() == '' and 'not kept' in again.err()
    assert stuck.effects() == 1


def test_a5b_not_executed_runs_again(stuck, store):
    row = stuck()
    assert stuck.again().returncode == 76
    r = store.keys('resolve', row['key'], '--not-executed', '--reason', 'no mail', '--who', 'anna',
                   '--yes')
    assert r.returncode == 0 and 'the next call runs it' in r.stderr
    assert store.row(row['key'])['state'] == 'FREE'
    again = stuck.again()
    assert again.returncode == 0 and again.out() == 'done\n'
    assert stuck.effects() == 2
    assert [(who, reason) for _, who, reason in store.audit()] == [('anna', 'no mail')]


def test_a5b_refused_while_the_lease_is_alive(build, procs, tmp, store):
    go = tmp / 'go'
    os.mkfifo(go)
    p = procs.start([build.semel, 'run', 'k', '--db', store.url, '--', 'cat', str(go)])
    store.wait_state('k', 'IN_FLIGHT')
    for verb in (['resolve', 'k', '--executed'], ['resolve', 'k', '--not-executed'],
                 ['release', 'k']):
        r = store.keys(*verb, '--reason', 'r', '--yes')
        assert r.returncode == 75 and 'still runs' in r.stderr
    store.set_holder('k', ELSEWHERE)
    for verb in (['resolve', 'k', '--executed'], ['resolve', 'k', '--not-executed']):
        r = store.keys(*verb, '--reason', 'r', '--yes', '--force')
        assert r.returncode == 65 and 'its lease ends in' in r.stderr
    go.write_text('')
    assert p.wait() == 0 and store.row('k')['state'] == 'COMPLETED'
    r = store.keys('resolve', 'k', '--not-executed', '--reason', 'r', '--yes')
    assert r.returncode == 65 and 'state' in r.stderr
    assert store.audit() == []


def test_a5b_guarded_by_the_attempt_that_was_shown(stuck, store):
    shown = stuck()['attempt']
    assert store.keys('resolve', 'daily-report', '--not-executed', '--reason', 'r', '--attempt',
                      shown).returncode == 0
    # somebody else looked at the old page
    r = store.keys('resolve', 'daily-report', '--executed', '--reason', 'r', '--attempt', shown)
    assert r.returncode == 65 and 'changed since it was shown' in r.stderr
    assert len(store.audit()) == 1
    r = store.keys('resolve', 'daily-report', '--executed', '--reason', 'r', '--attempt', 'abc')
    assert r.returncode == 64 and 'HEX:TOKEN' in r.stderr


def test_a10_another_host_needs_force(stuck, store):
    stuck()
    store.set_holder('daily-report', ELSEWHERE)
    r = store.keys('resolve', 'daily-report', '--not-executed', '--reason', 'r', '--yes')
    assert r.returncode == 65 and 'on host elsewhere' in r.stderr and '--force' in r.stderr
    assert 'on another host' in store.keys('show', 'daily-report').stdout
    r = store.keys('resolve', 'daily-report', '--not-executed', '--reason', 'r', '--yes', '--force')
    assert r.returncode == 0


def test_a10_a_rebooted_host_needs_no_force(stuck, store):
    stuck()
    store.set_holder('daily-report', f'host={os.uname().nodename} pid=1 boot=earlier lock=/l')
    assert 'started again since' in store.keys('show', 'daily-report').stdout
    assert store.keys('resolve', 'daily-report', '--not-executed', '--reason', 'r',
                      '--yes').returncode == 0


RESOLVE_USAGE = [
    (['--executed', '--yes'], '--reason'),
    (['--executed', '--yes', '--reason', ''], '--reason'),
    (['--yes', '--reason', 'r'], 'either --executed or --not-executed'),
    (['--executed', '--not-executed', '--yes', '--reason', 'r'], 'either'),
    (['--not-executed', '--status', '1', '--yes', '--reason', 'r'], '--executed'),
    (['--executed', '--reason', 'r'], '--attempt'),
    (['--executed', '--status', '256', '--reason', 'r', '--yes'], '0 to 255'),
    (['--executed', '--body-file', '/no/such', '--reason', 'r', '--yes'], 'cannot read /no/such'),
    (['--executed', '--reason', 'r' * 2000, '--yes'], 'reason'),
]


@pytest.mark.parametrize('store_url', ['sqlite'], indirect=True)
def test_a6_what_was_claimed_before_a_reboot_has_no_time_of_this_one(stuck, store, semel):
    def told(key):
        row = store.row(key)
        table = store.keys('list', key).stdout.splitlines()
        assert row['claimed'] is None and row['lease_until'] is None and row['look_from'] is None, row
        assert ' before boot ' in table[1], table
        assert 'since      before the last boot\n' in store.keys('show', key).stdout
        return row['state']
    stuck('held')
    assert semel('run', 'replayed', '--db', store.url, '--', 'true').returncode == 0
    store.sql('UPDATE semel_meta SET boot_id = zeroblob(16)', None)  # as it was on the last boot
    assert (told('held'), told('replayed')) == ('IN_FLIGHT', 'COMPLETED')
    assert 'lease over before the last boot\n' in store.keys('show', 'held').stdout
    assert store.keys('purge').returncode == 0
    store.sql('UPDATE semel_meta SET boot_id = zeroblob(16)', None)  # what the purge wrote is no time either
    assert (told('held'), told('replayed')) == ('UNKNOWN', 'COMPLETED')


@pytest.mark.parametrize('store_url', ['sqlite'], indirect=True)
def test_a6_run_tells_who_held_it_before_a_reboot(stuck, store):
    stuck('k')
    store.sql('UPDATE semel_meta SET boot_id = zeroblob(16)', None)
    again = stuck.again()
    assert again.returncode == 76
    assert 'last held since before the last boot by host=' in again.err()
    assert 'lease over before the last boot' in again.err()


def test_resolve_usage(stuck, store):
    stuck()
    for args, says in RESOLVE_USAGE:
        r = store.keys('resolve', 'daily-report', *args)
        assert r.returncode == 64 and says in r.stderr, (args, r.stderr)
    assert store.row('daily-report')['state'] == 'IN_FLIGHT' and store.audit() == []


def ask(build, store, *args, answer=''):
    """`semel keys` with a terminal in front of it."""
    master, slave = pty.openpty()
    p = subprocess.Popen([build.semel, 'keys', *args, '--db', store.url], stdin=slave,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(slave)
    os.write(master, answer.encode())
    _, err = p.communicate(timeout=20)
    os.close(master)
    return p.returncode, err


@pytest.mark.parametrize('answer, code', [('y', 0), ('n', 65)])
def test_a_person_is_asked_to_look_first(stuck, store, build, answer, code):
    stuck()
    ended, err = ask(build, store, 'resolve', 'daily-report', '--not-executed', '--reason', 'r',
                     answer=answer + '\n')
    assert ended == code
    assert 'Look at the other side now: did it happen?' in err and 'Go on? [y/N]' in err
    assert 'attempt ' in err and 'last held' not in err.split('Look')[1]
    assert len(store.audit()) == (1 if code == 0 else 0)


@pytest.fixture
def dead(build, procs, tmp, store):
    """A key whose holder died, and whose lease still lives."""
    p = procs.start([build.semel, 'run', 'k', '--db', store.url, '--lease', '1h', '--', 'sh', '-c',
                     f'echo x > {tmp}/begun; exec sleep 1000'])
    wait_until((tmp / 'begun').exists, 20, 'the command runs')
    p.kill()
    p.wait()
    return store.row('k')


def test_a5b_nobody_is_asked_to_look_too_early(build, dead, store):
    for verb in (['resolve', 'k', '--not-executed'], ['resolve', 'k', '--executed'], ['release', 'k']):
        code, err = ask(build, store, *verb, '--reason', 'r', answer='y\n')
        assert code == 65 and 'its lease ends in' in err
        assert 'Look at the other side' not in err and 'Go on?' not in err
    assert 'look from ' in store.keys('show', 'k').stdout and dead['look_from']


def test_a5b_what_was_seen_too_early_decides_nothing(dead, store):
    """Shown while the lease lived, decided when it was over: who knows what came in between."""
    early = dead['attempt']
    assert early.endswith(':early') and f'{early}\n' in store.keys('show', 'k').stdout
    store.end_lease('k')
    late = store.row('k')['attempt']
    assert late + ':early' == early and 'look from' not in store.keys('show', 'k').stdout
    verb = ['resolve', 'k', '--reason', 'r', '--attempt']
    for refused in (['resolve', 'k', '--not-executed'], ['release', 'k']):
        r = store.keys(*refused, '--reason', 'r', '--attempt', early)
        assert r.returncode == 65 and 'look at the other side again' in r.stderr
    assert store.keys(*verb, 'ff' + early, '--executed').returncode == 65
    assert store.row('k')['state'] == 'IN_FLIGHT' and store.audit() == []
    assert store.keys(*verb, late, '--not-executed').returncode == 0


def test_a5b_what_was_seen_early_is_there(dead, store):
    store.end_lease('k')
    r = store.keys('resolve', 'k', '--executed', '--reason', 'r', '--attempt', dead['attempt'])
    assert r.returncode == 0, r.stderr


def test_release_of_a_completed_key_lets_it_run_again(store, semel):
    def run():
        return semel('run', 'k', '--db', store.url, '--', 'sh', '-c', 'echo $$').out()
    first = run()
    assert run() == first
    r = store.keys('release', 'k', '--reason', 'late numbers', '--yes')
    assert r.returncode == 0
    assert store.row('k')['state'] == 'FREE'
    assert store.keys('release', 'k', '--reason', 'again', '--yes').returncode == 0  # free already
    assert run() != first
    assert [reason for _, _, reason in store.audit()] == ['late numbers']


def test_release_of_a_stuck_key_has_all_guards(stuck, store):
    stuck()
    store.set_holder('daily-report', ELSEWHERE)
    assert store.keys('release', 'daily-report', '--reason', 'r', '--yes').returncode == 65
    r = store.keys('release', 'daily-report', '--reason', 'r', '--yes', '--force')
    assert r.returncode == 0 and store.row('daily-report')['state'] == 'FREE'


def test_list_show_and_json(stuck, store, semel):
    stuck('b-stuck')
    assert semel('run', 'a-done', '--db', store.url, '--', 'echo', 'hi').returncode == 0
    assert semel('run', 'c-hidden', '--store-key', 'digest', '--db', store.url, '--', 'true')\
        .returncode == 0
    rows = store.rows()
    assert [r['key'] for r in rows] == ['b-stuck', 'a-done', '']  # in the order of creation
    assert [r['key'] for r in store.rows('--stuck')] == ['b-stuck']
    assert [r['key'] for r in store.rows('--key', 'a-done')] == ['a-done']
    table = store.keys('list').stdout.splitlines()
    assert len(table) == 4 and table[0].startswith('STATE')
    assert table[1].startswith('IN_FLIGHT') and ' over ' in table[1]
    assert table[1].split()[-3] == rows[0]['attempt']
    # a key of which only the digest is kept is found by its id, or by its text as it was used
    hidden = rows[2]['id']
    assert json.loads(store.keys('show', '--id', hidden, '--json').stdout)['id'] == hidden
    assert store.row('c-hidden')['id'] == hidden
    assert store.keys('show', 'a-done', '--body').stdout == 'hi\n'
    shown = store.row('a-done')
    assert (shown['status'], shown['body_bytes'], shown['body_kept']) == (0, 3, True)
    assert (shown['mode'], shown['scope'], shown['operation']) == ('run', 'semel run', 'run echo')
    for args, code in ((['nothing'], 65), ([], 64), (['--id', 'ff'], 64),
                       (['a-done', '--id', hidden], 64), (['a-done', '--mode', 'tx'], 65),
                       (['a-done', '--scope', ''], 65), (['a-done', '--principal', 'p'], 65)):
        r = store.keys('show', *args)
        assert r.returncode == code and r.stderr.count('\n') == 1, (args, r.stderr)
    assert store.keys('show', 'b-stuck', '--body').returncode == 65


def test_one_text_in_two_scopes_must_be_named(build, store, semel, procs, tmp):
    assert semel('run', 'k', '--db', store.url, '--', 'echo', 'run').returncode == 0
    assert procs.run([build.path('tests/crash/lib_command'), store.url, 'k', tmp / 'effects']).out() == 'done\n'
    r = store.keys('show', 'k')
    assert r.returncode == 65 and '--id' in r.stderr
    assert store.keys('show', 'k', '--scope', '', '--body').stdout == 'done\n'
    assert store.keys('show', 'k', '--scope', 'semel run', '--body').stdout == 'run\n'
    assert store.keys('release', 'k', '--reason', 'r', '--yes').returncode == 65
    assert store.audit() == []


HOSTILE = ["'; DROP TABLE semel_command; --", '%s%n$1:key', '-- x', '*/', 'k' * 255, '~!@#$^&()']


def test_hostile_keys(store, semel):
    for key in HOSTILE:
        r = semel('run', f'--key={key}', '--db', store.url, '--', 'echo', key)
        assert r.returncode == 0 and r.out() == key + '\n', key
        assert store.row(f'--key={key}')['key'] == key
        assert semel('run', f'--key={key}', '--db', store.url, '--', 'echo', key)\
            .out() == key + '\n'
    assert [r['key'] for r in store.rows()] == HOSTILE


def test_control_bytes_of_others_do_not_reach_the_terminal(store, semel):
    assert semel('run', 'k', '--operation', 'a\x1b[31mb\n', '--db', store.url, '--',
                 'true').returncode == 0
    for out in (store.keys('list').stdout, store.keys('show', 'k').stdout):
        assert '\x1b' not in out and 'a\\x1b[31mb\\x0a' in out
    assert store.row('k')['operation'] == 'a\x1b[31mb\n'


def test_a9_purge_forgets_what_is_over_and_nothing_else(stuck, store, semel):
    stuck('lost')
    for key in ('old', 'new'):
        assert semel('run', key, '--retention', '1s' if key == 'old' else '24h', '--db', store.url,
                     '--', 'true').returncode == 0

    def purged():
        r = store.keys('purge', '--json')
        assert r.returncode == 0, r.stderr
        totals.update({k: totals[k] + v for k, v in json.loads(r.stdout).items()})
        return totals['deleted'] == 1
    totals = {'deleted': 0, 'unknown': 0}
    wait_until(purged, 20, 'the old one is over')
    assert totals == {'deleted': 1, 'unknown': 1}
    assert {r['key']: r['state'] for r in store.rows()} == {'lost': 'UNKNOWN', 'new': 'COMPLETED'}
    assert 'deleted 0' in store.keys('purge').stdout
    assert stuck.again().returncode == 76

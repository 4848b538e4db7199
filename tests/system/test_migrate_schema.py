# SPDX-License-Identifier: Apache-2.0
"""`semel migrate`, and what a store that is not as it should be says: one sentence that tells what
to do, exit code 69, and nothing ran."""
import os
import shutil
import sqlite3
import subprocess

import psycopg2
import pytest

from support import Store


@pytest.fixture
def ran(tmp):
    """Did the command of run_one() run?"""
    return (tmp / 'ran').exists


@pytest.fixture
def run_one(semel, tmp):
    def run(url, *options, **kw):
        return semel('run', 'k', '--db', url, *options, '--', 'touch', tmp / 'ran', **kw)
    return run


def one_sentence(r, *says):
    """Refused as a store that is down, in one line that says what to do."""
    assert r.returncode == 69, r.logs()
    assert r.out() == '' and r.err().count('\n') == 1, r.logs()
    for word in says:
        assert word.lower() in r.err().lower(), r.err()


# -- migrate -------------------------------------------------------------------------------------

def test_migrate_twice_changes_nothing(semel, pg, pg_url, pg_db, run_one, ran):
    tables = ("SELECT string_agg(n.nspname || '.' || c.relname || ' ' || c.oid, ',' ORDER BY c.oid) "
              "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
              "WHERE n.nspname = 'semel'")
    assert semel('migrate', '--db', pg_url).returncode == 0
    first = pg.value(pg_db, tables)
    assert 'semel.command' in first and 'semel.audit' in first
    r = semel('migrate', '--db', pg_url)
    assert r.returncode == 0 and 'up to date' in r.err()
    assert pg.value(pg_db, tables) == first
    assert run_one(pg_url).returncode == 0 and ran()


def test_renamed_from_is_for_a_table_of_ones_own_on_postgres(semel, tmp):
    mapping = ['--for-table', 'app.events', '--preset', 'tutorial']
    r = semel('migrate', '--renamed-from', 'app.outbox_event', '--db', 'postgres:')
    assert r.returncode == 64 and '--for-table' in r.err(), r.logs()
    r = semel('migrate', *mapping, '--renamed-from', 'outbox_event', '--db', f'sqlite:{tmp / "x.db"}')
    assert r.returncode != 0 and r.out() == '' and 'PostgreSQL' in r.err(), r.logs()
    r = semel('migrate', *mapping, '--renamed-from', 'app.outbox_event', '--db', 'postgres:')
    assert r.returncode == 0 and '\'"app"."outbox_event"\'' in r.out(), r.logs()


def test_ten_migrate_at_once(procs, build, pg_url, run_one):
    ten = [procs.start([build.semel, 'migrate', '--db', pg_url]) for _ in range(10)]
    assert [p.wait() for p in ten] == [0] * 10, [p.err() for p in ten]
    assert run_one(pg_url).returncode == 0


def test_print_is_what_migrate_runs(semel, pg, pg_url, pg_db, run_one):
    r = semel('migrate', '--print', '--db', pg_url)
    assert r.returncode == 0 and r.err() == ''
    assert pg.value(pg_db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'semel'") == 0
    pg.psql(pg_db, r.out())
    assert run_one(pg_url).returncode == 0
    assert semel('migrate', '--db', pg_url).returncode == 0


def test_print_needs_no_server(semel):
    r = semel('migrate', '--print', '--db', 'postgres://nobody@127.0.0.1:1/nowhere')
    assert r.returncode == 0 and 'CREATE SCHEMA' in r.out()


@pytest.fixture
def app(semel, pg, pg_url, pg_db):
    """A role that got what `--grants` prints, and no more."""
    role = 'app "least" privilege'
    quoted = '"' + role.replace('"', '""') + '"'
    assert semel('migrate', '--db', pg_url).returncode == 0
    pg.sql(pg_db, f'CREATE ROLE {quoted} LOGIN')
    r = semel('migrate', '--grants', role, '--db', pg_url)
    assert r.returncode == 0, r.logs()
    pg.psql(pg_db, r.out())
    yield role
    pg.sql(pg_db, f'DROP OWNED BY {quoted}')
    pg.sql(pg_db, f'DROP ROLE {quoted}')


def test_the_least_privileged_role_can_work_and_no_more(app, build, semel, pg, pg_db):
    url = pg.url(pg_db, user=app)
    store = Store(build, url)
    assert semel('run', 'k', '--db', url, '--', 'echo', 'hi').returncode == 0
    assert semel('run', 'k', '--db', url, '--', 'echo', 'hi').out() == 'hi\n'
    assert store.row('k')['state'] == 'COMPLETED'
    assert len(store.rows()) == 1
    assert store.keys('release', 'k', '--reason', 'r', '--yes').returncode == 0
    assert store.keys('purge').returncode == 0
    conn = psycopg2.connect(pg.dsn(pg_db) .replace('user=postgres', f"user='{app}'"))
    conn.autocommit = True
    for statement in ('DROP TABLE semel.command', 'CREATE TABLE semel.mine (i int)',
                      'ALTER TABLE semel.command ADD x int', 'TRUNCATE semel.command',
                      'DELETE FROM semel.audit', "UPDATE semel.audit SET reason = ''",
                      'DELETE FROM semel.schema_version'):
        with conn.cursor() as cur, pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cur.execute(statement)
    conn.close()


def test_a_role_without_grants_is_told_how(semel, pg, pg_url, pg_db, run_one, ran):
    assert semel('migrate', '--db', pg_url).returncode == 0
    pg.sql(pg_db, 'CREATE ROLE stranger LOGIN')
    try:
        r = run_one(pg.url(pg_db, user='stranger'))
        one_sentence(r, 'semel migrate --grants')
        assert not ran()
        r = semel('migrate', '--db', pg.url(pg_db, user='stranger'))
        assert r.returncode in (0, 69) and r.err().count('\n') == 1
    finally:
        pg.sql(pg_db, 'DROP ROLE stranger')


# -- PostgreSQL as it should not be ----------------------------------------------------------------

def test_schema_missing(pg_url, run_one, ran, semel):
    one_sentence(run_one(pg_url), 'semel migrate')
    one_sentence(semel('keys', 'list', '--db', pg_url), 'semel migrate')
    assert not ran()


def test_newer_version(pg, pg_db, pg_url, semel, run_one, ran):
    assert semel('migrate', '--db', pg_url).returncode == 0
    pg.sql(pg_db, 'UPDATE semel.schema_version SET version = 99')
    one_sentence(run_one(pg_url), '99', 'newer')
    one_sentence(semel('migrate', '--db', pg_url), '99', 'newer')
    assert not ran()


def test_wrong_password_is_not_shown(pg, pg_db, run_one, ran, semel):
    url = pg.url(pg_db, host='127.0.0.1', password='hunter2hunter2')
    for r in (run_one(url), semel('migrate', '--db', url)):
        one_sentence(r, 'password')
        assert 'hunter2' not in r.logs()
    assert not ran()


def test_no_such_database_or_server(pg, run_one, ran):
    one_sentence(run_one(pg.url('nowhere')), 'nowhere')
    one_sentence(run_one('postgres://postgres@127.0.0.1:1/x'))
    assert not ran()


def test_read_only_server(pg, pg_db, pg_url, semel, run_one, ran):
    assert semel('migrate', '--db', pg_url).returncode == 0
    pg.sql('postgres', f'ALTER DATABASE {pg_db} SET default_transaction_read_only = on')
    one_sentence(run_one(pg_url), 'takes no writes')
    assert not ran()


def test_passwords_come_from_a_file(pg, pg_db, semel, tmp):
    from support.postgres import PASSWORD
    passfile = tmp / 'pgpass'
    passfile.write_text(f'127.0.0.1:{pg.port}:*:*:{PASSWORD}\n')
    passfile.chmod(0o600)
    url = pg.url(pg_db, host='127.0.0.1', password='')
    env = {'PGPASSFILE': passfile}
    assert semel('migrate', '--db', url, env=env).returncode == 0
    assert semel('run', 'k', '--db', url, '--', 'true', env=env).returncode == 0


# -- SQLite as it should not be --------------------------------------------------------------------

def test_ten_open_a_new_file_at_once(procs, build, sqlite_url, tmp):
    ten = [procs.start([build.semel, 'run', f'k{i}', '--db', sqlite_url, '--', 'true'])
           for i in range(10)]
    assert [p.wait() for p in ten] == [0] * 10, [p.err() for p in ten]
    assert len(Store(build, sqlite_url).rows()) == 10


def test_migrate_of_a_sqlite_file(semel, sqlite_url, run_one, ran):
    assert semel('migrate', '--db', sqlite_url).returncode == 0
    assert semel('migrate', '--db', sqlite_url).returncode == 0
    assert run_one(sqlite_url).returncode == 0 and ran()
    r = semel('migrate', '--print', '--db', sqlite_url)
    assert r.returncode == 0 and 'CREATE TABLE semel_command' in r.out()


def test_sqlite_newer_version(semel, sqlite_url, run_one, ran):
    assert semel('migrate', '--db', sqlite_url).returncode == 0
    db = sqlite3.connect(sqlite_url[len('sqlite:'):])
    db.execute('INSERT INTO semel_schema_version VALUES (99, 0)')
    db.commit()
    db.close()
    one_sentence(run_one(sqlite_url), 'newer')
    assert not ran()


def test_sqlite_file_that_is_none(tmp, run_one, ran):
    (tmp / 'text.db').write_text('this is no database\n' * 100)
    one_sentence(run_one(f'sqlite:{tmp}/text.db'))
    one_sentence(run_one(f'sqlite:{tmp}/no/such/folder/x.db'))
    assert not ran()


def test_sqlite_read_only(tmp, semel, procs, build, ran):
    """A read-only file system: file permissions do not stop root."""
    folder = tmp / 'ro'
    folder.mkdir()
    url = f'sqlite:{folder}/semel.db'
    assert semel('migrate', '--db', url).returncode == 0
    r = procs.run(['unshare', '-rm', 'sh', '-c',
                   'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"',
                   'sh', folder, build.semel, 'run', 'k', '--db', url, '--', 'touch', tmp / 'ran'])
    one_sentence(r, 'read-only')
    assert not ran()


def test_disk_full(tmp, procs, build):
    """A file system with next to no room: what does not fit is refused in one sentence, before
    anything runs, and after it is not lost silently."""
    disk = tmp / 'disk'
    disk.mkdir()
    script = ('mount -t tmpfs -o size=1m none "$1" && cd "$1" && "$2" migrate --db sqlite:semel.db '
              '&& { head -c 2m /dev/zero > fill 2>/dev/null; '
              '"$2" run k --db sqlite:semel.db -- touch "$3"; echo "code $?"; '
              'rm fill; "$2" run k --db sqlite:semel.db -- echo room; }')
    r = procs.run(['unshare', '-rm', 'sh', '-c', script, 'sh', disk, build.semel, tmp / 'ran'])
    assert 'code 69\n' in r.out(), r.logs()
    assert 'no room left' in r.err() and not (tmp / 'ran').exists()
    assert r.out().endswith('room\n')


def test_state_directory_that_cannot_be_made(tmp, semel, sqlite_url):
    (tmp / 'file').write_text('')
    r = semel('run', 'k', '--db', sqlite_url, '--', 'true', env={'SEMEL_STATE_DIR': tmp / 'file'})
    one_sentence(r, str(tmp / 'file'))
    r = semel('keys', 'list', env={'SEMEL_STATE_DIR': tmp / 'file'})
    one_sentence(r, '--db URL')


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which('setpriv'), reason='only root drops root')
def test_the_default_place_for_others_than_root(tmp, build):
    """Everybody else: XDG_STATE_HOME, or ~/.local/state."""
    home = tmp / 'home'
    home.mkdir()
    shutil.chown(home, 'nobody')
    tmp.chmod(0o755)
    env = {'HOME': str(home), 'PATH': os.environ['PATH']}
    program = shutil.copy(build.semel, tmp)  # the clone may be in a folder that is closed to others
    argv = ['setpriv', '--reuid=nobody', '--clear-groups', '--', program, 'run', 'k', '--', 'echo', 'hi']
    r = subprocess.run(argv, env=env, capture_output=True, text=True, cwd='/')
    assert r.stdout == 'hi\n', r.stderr
    assert (home / '.local/state/semel/semel.db').exists()
    env['XDG_STATE_HOME'] = str(home / 'xdg')
    r = subprocess.run(argv, env=env, capture_output=True, text=True, cwd='/')
    assert r.stdout == 'hi\n' and (home / 'xdg/semel/semel.db').exists()

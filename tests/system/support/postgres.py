# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of our own: own data folder, free port, unix socket; run as the user
postgres when we are root.  fsync stays on, since semel refuses a server without it."""
import glob
import itertools
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import urllib.parse

import psycopg2

from ports import free_port

from .wait import wait_until

PASSWORD = 'correct-horse'  # of the superuser, over TCP


def bin_dir():
    dirs = sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda d: int(d.split('/')[-2]))
    if not dirs:
        raise FileNotFoundError('PostgreSQL is not installed: run `make setup`')
    return pathlib.Path(dirs[-1])


def as_postgres(argv):
    """argv, run as the user postgres when we are root (the server refuses root)."""
    if os.geteuid() != 0:
        return argv
    return ['setpriv', '--reuid=postgres', '--regid=postgres', '--init-groups',
            '--pdeathsig=QUIT', '--'] + argv


class Postgres:
    _names = itertools.count(1)

    def __init__(self, settings=None):
        """settings: {name: value} for postgresql.conf, on top of what is below."""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='semel-pg-'))
        self.data = self.dir / 'data'
        self.log = self.dir / 'log'
        self.locales = self.dir / 'locales'  # beside the system's C
        self.port = free_port()
        self.superuser = 'postgres'
        self.popen = None
        self._created = []
        pwfile = self.dir / 'pwfile'
        pwfile.write_text(PASSWORD + '\n')
        if os.geteuid() == 0:
            user = pwd.getpwnam('postgres')
            for p in (self.dir, pwfile):
                os.chown(p, user.pw_uid, user.pw_gid)
        self.dir.chmod(0o755)  # other users of this machine may use the socket
        subprocess.run(
            as_postgres([str(bin_dir() / 'initdb'), '-D', str(self.data), '-U', self.superuser,
                         '--auth-local=trust', '--auth-host=scram-sha-256', '--encoding=UTF8',
                         '--locale=C', '--no-sync', '--no-instructions', f'--pwfile={pwfile}']),
            check=True, stdout=subprocess.DEVNULL, cwd='/')
        conf = {'listen_addresses': "'127.0.0.1'", 'port': self.port,
                'unix_socket_directories': f"'{self.dir}'", 'max_connections': 200,
                'shared_buffers': "'64MB'", 'log_min_messages': 'warning',
                'log_line_prefix': "'%m [%p] %d '", 'timezone': "'UTC'"}
        conf.update(settings or {})
        with open(self.data / 'postgresql.conf', 'a', encoding='utf-8') as f:
            for k, v in conf.items():
                f.write(f'{k} = {v}\n')

    # -- life ------------------------------------------------------------------------------
    def learn(self, language):
        """Before the start: the server can say its messages in this language ('de_DE')."""
        self.locales.mkdir()
        subprocess.run(['localedef', '-i', language, '-f', 'UTF-8', str(self.locales / f'{language}.UTF-8')],
                       check=True)
        return self

    def start(self, timeout=30.0):
        """Start and wait until it answers."""
        assert self.popen is None or self.popen.poll() is not None, 'it runs already'
        with open(self.log, 'ab') as log:
            self.popen = subprocess.Popen(
                as_postgres([str(bin_dir() / 'postgres'), '-D', str(self.data)]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd='/',
                env={**os.environ, 'LOCPATH': str(self.locales)}, start_new_session=True)

        def answers():
            if self.popen.poll() is not None:
                raise RuntimeError(f'PostgreSQL did not start:\n{self.log.read_text()[-2000:]}')
            with_conn = self.connect('postgres')
            with_conn.close()
            return True

        wait_until(answers, timeout, 'PostgreSQL answers')
        return self

    def stop(self, mode='immediate', timeout=30.0):
        """mode: immediate (as a crash), fast (clients are cut off), smart."""
        if self.popen is None or self.popen.poll() is not None:
            return
        sig = {'immediate': signal.SIGQUIT, 'fast': signal.SIGINT, 'smart': signal.SIGTERM}[mode]
        os.kill(self.popen.pid, sig)
        self.popen.wait(timeout)

    def restart(self, mode='immediate'):
        self.stop(mode)
        self.start()

    def close(self):
        self.stop('immediate')
        shutil.rmtree(self.dir, ignore_errors=True)

    # -- use -------------------------------------------------------------------------------
    def url(self, db='postgres', user=None, password=None, host=None, **params):
        """postgres:// URL: over the unix socket, or over TCP when host is given (then the
        superuser's password is added unless another is given; '' for none)."""
        user = user or self.superuser
        if host is None:
            q = {'host': str(self.dir), 'port': str(self.port), **params}
            where = ''
        else:
            q = params
            where = f'{host}:{self.port}'
            if password is None and user == self.superuser:
                password = PASSWORD
        auth = urllib.parse.quote(user) + (f':{urllib.parse.quote(password)}' if password else '')
        query = urllib.parse.urlencode(q, quote_via=urllib.parse.quote)
        return f'postgres://{auth}@{where}/{db}' + (f'?{query}' if query else '')

    def dsn(self, db='postgres', user=None):
        """key=value form, for libpq and psycopg2."""
        return f"host={self.dir} port={self.port} dbname={db} user={user or self.superuser}"

    def connect(self, db='postgres', user=None, autocommit=True):
        conn = psycopg2.connect(self.dsn(db, user), connect_timeout=5)
        conn.autocommit = autocommit
        return conn

    def sql(self, db, query, args=None):
        """Run one statement on a connection of its own; returns the rows, or None."""
        conn = self.connect(db)
        try:
            with conn.cursor() as cur:
                cur.execute(query, args)
                return cur.fetchall() if cur.description else None
        finally:
            conn.close()

    def value(self, db, query, args=None):
        """The first column of the first row."""
        return self.sql(db, query, args)[0][0]

    def psql(self, db, script):
        """Run a script through psql as it would be typed; returns what it prints."""
        r = subprocess.run(['psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-At',
                            self.dsn(db)], input=script, text=True, capture_output=True)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def new_database(self, options=''):
        """An empty database; returns its name."""
        name = f't{next(self._names)}'
        self.sql('postgres', f'CREATE DATABASE {name} {options}')
        self._created.append(name)
        return name

    def drop_database(self, name):
        self.sql('postgres', f'DROP DATABASE IF EXISTS {name} WITH (FORCE)')

# SPDX-License-Identifier: Apache-2.0
"""PgBouncer in transaction mode, in front of a support.Postgres server."""
import os
import pwd
import shutil
import signal
import subprocess
import tempfile

import psycopg2

from ports import free_port

from .postgres import PASSWORD, as_postgres
from .wait import wait_until


class PgBouncer:
    """As few server connections as given, so that clients really share them."""

    def __init__(self, pg, db, server_connections=3):
        program = shutil.which('pgbouncer', path=os.environ['PATH'] + ':/usr/sbin')
        if not program:
            raise FileNotFoundError('PgBouncer is not installed: run `make setup`')
        self.pg, self.db, self.port = pg, db, free_port()
        self.dir = tempfile.mkdtemp(prefix='semel-bouncer-')
        with open(f'{self.dir}/ini', 'w', encoding='ascii') as f:
            f.write(f'''[databases]
{db} = host=127.0.0.1 port={pg.port} dbname={db} user={pg.superuser} password={PASSWORD}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {server_connections}
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
''')
        if os.geteuid() == 0:  # it refuses root, as the server does
            user = pwd.getpwnam('postgres')
            for path in (self.dir, f'{self.dir}/ini'):
                os.chown(path, user.pw_uid, user.pw_gid)
        self.popen = subprocess.Popen(as_postgres([program, '-q', f'{self.dir}/ini']),
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, cwd='/')
        wait_until(self.answers, 15, 'PgBouncer answers')

    @property
    def url(self):
        return f'postgres://{self.pg.superuser}@127.0.0.1:{self.port}/{self.db}'

    def answers(self):
        try:
            psycopg2.connect(self.url, connect_timeout=5).close()
            return True
        except psycopg2.OperationalError:
            assert self.popen.poll() is None, 'PgBouncer ended'
            return False

    def close(self):
        self.popen.send_signal(signal.SIGTERM)
        self.popen.wait(15)
        shutil.rmtree(self.dir, ignore_errors=True)

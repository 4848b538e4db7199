# SPDX-License-Identifier: Apache-2.0
"""A running payd, and its ledger looked at from outside."""
import sqlite3


class Payd:
    def __init__(self, procs, build, ledger, port=0, **options):
        """options: cut=0.5, slow_ms=100, seed=7, ..."""
        argv = [build.path('payd'), '--ledger', ledger, '--listen', f'127.0.0.1:{port}']
        for name, value in options.items():
            argv += ['--' + name.replace('_', '-'), str(value)]
        self.ledger = ledger
        self.process = procs.start(argv, name='payd')
        self.port = int(self.process.wait_log(r'listening on 127\.0\.0\.1:(\d+)').group(1))
        self.url = f'http://127.0.0.1:{self.port}/charges'

    def charges(self):
        """(key, order_id, amount), oldest first."""
        conn = sqlite3.connect(self.ledger, timeout=10)
        try:
            return conn.execute('SELECT key, order_id, amount FROM ledger ORDER BY id').fetchall()
        finally:
            conn.close()

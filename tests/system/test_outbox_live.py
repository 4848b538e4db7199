# SPDX-License-Identifier: Apache-2.0
"""`semel outbox` beside a relay that runs: who owns the slots, which keys wait and for which row, and the
operator's verbs meanwhile, on both stores."""
import json
import subprocess
import time

import pytest

from support import wait_until
from support.relay import Relay

pytestmark = pytest.mark.kafka


class Live:
    def __init__(self, store, procs):
        self.store, self.procs = store, procs
        self.is_sqlite = store.url.startswith('sqlite:')
        self.ok('status')  # which makes a SQLite file
        broker = procs.start([store.build.semel, 'dev-broker', '--topic', 'orders=2'], name='dev-broker')
        self.bootstrap = broker.wait_log(r'(?m)^(127\.0\.0\.1:\d+)$').group(1)

    def relay(self, **options):
        return Relay(self.procs, self.store.build, self.store.url, self.bootstrap, on_dead='block',
                     **options)

    def ok(self, *args):
        r = subprocess.run([self.store.build.semel, 'outbox', *args, '--db', self.store.url], text=True,
                           capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def status(self, kind):
        lines = self.ok('status', '--json', '--on-dead', 'block').splitlines()
        found = [o for o in map(json.loads, lines) if o['kind'] == kind]
        return found[0] if kind == 'outbox' else found

    def sql(self, text, *args):
        return self.store.sql(text.format('semel_outbox'), text.format('semel.outbox'), args)

    def add(self, key, payload='x', partition=None):
        return self.sql("INSERT INTO {} (topic, key, payload, partition) VALUES ('orders', ?, ?, ?) "
                        'RETURNING id', key, payload, partition)[0][0]

    def try_later(self, row, seconds):
        """As if the row had failed: its key waits."""
        if self.is_sqlite:
            when = int((time.time() + seconds) * 1e6)
            self.sql('UPDATE {} SET attempts = 1, next_attempt_at = ? WHERE id = ?', when, row)
        else:
            self.sql('UPDATE {} SET attempts = 1, next_attempt_at = clock_timestamp() + ?::interval '
                     'WHERE id = ?', f'{seconds} s', row)

    def left(self):
        return [r[0] for r in self.sql('SELECT id FROM {} ORDER BY id')]


@pytest.fixture
def live(store, procs):
    return Live(store, procs)


def test_status_names_owners_and_the_rows_that_block(live):
    late = live.add('slow')
    live.try_later(late, 60)
    behind_late = live.add('slow')
    relay = live.relay()
    wait_until(lambda: all(s['owner'] and not s['free'] for s in live.status('slot')), 20)
    me = f'pid={relay.p.pid}'
    assert all(me in s['owner'] for s in live.status('slot'))
    assert live.status('outbox')['relays'] == 1
    if not live.is_sqlite:
        assert all(0 < s['lease_left_s'] <= 5 for s in live.status('slot'))
    dead = live.add('odd', partition=99)  # there is no such partition
    wait_until(lambda: live.status('outbox')['dead'] == 1, 30)
    behind_dead = live.add('odd')
    live.add('good')
    wait_until(lambda: live.left() == [late, behind_late, dead, behind_dead], 30, 'the good row goes')
    wait_until(lambda: len(live.status('blocked')) == 2)
    blocked = {b['key']: b for b in live.status('blocked')}
    assert (blocked['odd']['row'], blocked['odd']['dead']) == (str(dead), True)
    assert (blocked['slow']['row'], blocked['slow']['dead']) == (str(late), False)
    assert 0 < blocked['slow']['next_try_s'] <= 60
    text = live.ok('status', '--on-dead', 'block')
    assert me in text and 'never: it is DEAD' in text and str(late) in text
    assert ('as long as it lives' in text) == live.is_sqlite
    # The operator decides while the relay owns the slot, and the key goes on.
    live.ok('discard', str(dead), '--reason', 'test')
    wait_until(lambda: live.left() == [late, behind_late], 30, 'the younger row of the key goes')
    assert [b['key'] for b in live.status('blocked')] == ['slow']
    assert relay.p.terminate(30) == 0, relay.p.logs()
    assert live.status('outbox')['relays'] == 0
    assert not any(me in (s['owner'] or '') and not s['free'] for s in live.status('slot'))


def test_status_answers_while_the_relay_is_stopped(live):
    """SIGSTOP: on PostgreSQL the lease ends and says so; on SQLite its lock stays, and so does it."""
    relay = live.relay(slot_lease='1s')
    wait_until(lambda: all(s['owner'] and not s['free'] for s in live.status('slot')), 20)
    relay.p.stop()
    row = live.add('k')
    if live.is_sqlite:
        assert live.status('outbox')['relays'] == 1
    else:
        wait_until(lambda: all(s['free'] for s in live.status('slot')), 20)
        assert live.status('outbox')['relays'] == 0
        assert '(gone)' in live.ok('status')
    assert live.left() == [row]
    relay.p.cont()
    wait_until(lambda: live.left() == [], 30)
    assert relay.p.terminate(30) == 0, relay.p.logs()

# SPDX-License-Identifier: Apache-2.0
"""What somebody runs who tries it out: shop, relay, dev-broker, billing, payd, and no server but files.
Every order is charged once, whoever is told to end, or killed, at whatever moment.  (On a real
PostgreSQL and Kafka, with everything at once: test_story_storm.py, test_shutdown_moments.py.)"""
import os
import random
import signal
import subprocess

import pytest

from ports import free_port
from support.binaries import ROOT
from support.payd import Payd
from support.shop import Database
from support.storm import Clients, Place
from support.wait import wait_until

pytestmark = pytest.mark.kafka
SEED = int(os.environ.get('SEMEL_SEED', random.randrange(1 << 30)))
MOMENTS = int(os.environ.get('SEMEL_MOMENTS', 60))


class Story:
    """Each program can be ended and started again under its name; ports and files stay."""

    def __init__(self, procs, build, tmp, seed):
        self.procs, self.build, self.tmp = procs, build, tmp
        self.random, self.seed = random.Random(seed), seed
        self.shop_port, self.pay_port = free_port(), free_port()
        self.shop_url, self.billing_url = f'sqlite:{tmp}/shop.db', f'sqlite:{tmp}/billing.db'
        self.shop_db = Database(self.shop_url)
        self.ledger = f'{tmp}/ledger.db'
        broker = procs.start([build.semel, 'dev-broker', '--topic', 'orders=4'], name='dev-broker')
        self.brokers = broker.wait_log(r'(?m)^(127\.0\.0\.1:\d+)$').group(1)
        self.process = {}
        for name in ('payd', 'shop', 'relay', 'billing'):
            self.start(name)

    def start(self, name):
        self.process[name] = getattr(self, 'start_' + name)()

    def start_payd(self):
        return Payd(self.procs, self.build, self.ledger, self.pay_port, cut=0.05, fail=0.02,
                    seed=self.seed).process

    def start_shop(self):
        p = self.procs.start([self.build.shop, '--store', self.shop_url, '--listen',
                              f'127.0.0.1:{self.shop_port}'], name='shop')
        p.wait_log('listening on')
        return p

    def start_relay(self):
        p = self.procs.start([self.build.semel, 'relay', '--db', self.shop_url, '--brokers',
                              self.brokers], name='relay')
        p.wait_log('relay to')
        return p

    def start_billing(self):
        p = self.procs.start([self.build.path('billing'), '--db', self.billing_url,
                              '--brokers', self.brokers, '--pay-url',
                              f'http://127.0.0.1:{self.pay_port}/charges'], name='billing')
        p.wait_log('waiting for events')
        return p

    # -- looking -----------------------------------------------------------------------------
    def confirmed(self):
        return self.shop_db.sql("SELECT count(*) FROM shop_order WHERE status = 'confirmed'")[0][0]

    def pending(self):
        return self.shop_db.sql('SELECT count(*) FROM semel_outbox')[0][0]

    def charged(self):
        return Database('sqlite:' + self.ledger).sql('SELECT count(*) FROM ledger')[0][0]

    def unfinished(self):
        return self.pending() > 0 or self.charged() < self.confirmed()

    def check(self):
        """The last line of ledger-check, its exit code, and all that it said."""
        orders = self.tmp / 'orders'
        orders.write_text(''.join(f'{i} {total}\n' for i, total in self.shop_db.sql(
            "SELECT id, total_kopecks FROM shop_order WHERE status = 'confirmed'")))
        r = subprocess.run([ROOT / 'examples/shop/ledger-check', '--ledger', self.ledger, '--orders',
                            orders], capture_output=True, text=True, timeout=60)
        return r.stdout.splitlines()[-1], r.returncode, r.stdout + r.stderr

    def settle(self, timeout=120):
        """Wait until all that was confirmed is charged, and the outbox is empty."""
        wait_until(lambda: not self.unfinished(), timeout, 'all charges')


@pytest.fixture
def story(procs, build, tmp):
    print(f'seed {SEED}')
    return Story(procs, build, tmp, SEED)


def end(process, sig):
    process.send(sig)
    if sig == signal.SIGTERM:
        assert process.wait(26) == 0, process.logs()
    else:
        assert process.wait(10) == -sig


def test_whoever_ends_at_random_moments_nothing_is_lost_or_doubled(story):
    clients = Clients([Place(story.shop_port)], 3, SEED, timeout=20)
    struck, unfinished = dict.fromkeys(story.process, 0), 0

    def more(orders):
        assert not clients.errors, clients.errors
        if clients.open() < 5:
            clients.release(5)
        return len(clients.confirmed) >= orders

    try:
        for _ in range(MOMENTS):
            orders = len(clients.confirmed) + 1 + story.random.randrange(10)
            wait_until(lambda: more(orders), timeout=60, what='orders')  # noqa: B023
            name = story.random.choice(sorted(struck))
            unfinished += story.unfinished()
            end(story.process[name], story.random.choice([signal.SIGTERM, signal.SIGKILL]))
            struck[name] += 1
            story.start(name)
        wait_until(lambda: clients.errors or clients.open() == 0, timeout=120, what='all clients to be answered')
    finally:
        clients.join()
    assert not clients.errors, clients.errors
    story.settle()
    print(struck, f'{len(clients.confirmed)} orders, {clients.retries} requests sent again, '
                  f'{unfinished} strikes at unfinished work')
    line, code, text = story.check()
    assert code == 0 and line.endswith(f'{story.charged()} charges, 0 missing, 0 doubled'), text
    assert story.confirmed() == len(clients.confirmed) > MOMENTS
    assert unfinished > 0

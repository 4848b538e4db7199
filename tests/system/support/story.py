# SPDX-License-Identifier: Apache-2.0
"""The whole way of an order: shop, relay, broker, billing, payd; and clients who never give up."""
import http.client
import json
import random
import subprocess
import threading

from .binaries import ROOT
from .payd import Payd
from .shop import Database
from .wait import answered, free_port, wait_until


class Story:
    """Each program can be ended and started again under its name; ports and files stay.

    SQLite and a dev-broker of its own, unless it is given databases and brokers."""

    def __init__(self, procs, build, tmp, seed, payd=(), shop_url=None, billing_url=None, brokers=None):
        self.procs, self.build, self.tmp = procs, build, tmp
        self.random = random.Random(seed)
        self.payd_options = dict(payd, seed=seed)
        self.shop_port, self.pay_port = free_port(), free_port()
        self.shop_url = shop_url or f'sqlite:{tmp}/shop.db'
        self.billing_url = billing_url or f'sqlite:{tmp}/billing.db'
        self.shop_db = Database(self.shop_url)
        self.ledger = f'{tmp}/ledger.db'
        if brokers is None:
            broker = procs.start([build.semel, 'dev-broker', '--topic', 'orders=4'], name='dev-broker')
            brokers = broker.wait_log(r'(?m)^(127\.0\.0\.1:\d+)$').group(1)
        self.brokers = brokers
        self.process = {}
        for name in ('payd', 'shop', 'relay', 'billing'):
            self.start(name)

    def start(self, name):
        self.process[name] = getattr(self, 'start_' + name)()

    def start_payd(self):
        return Payd(self.procs, self.build, self.ledger, self.pay_port, **self.payd_options).process

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
        return self.shop_db.sql('SELECT count(*) FROM semel_outbox',
                                'SELECT count(*) FROM semel.outbox')[0][0]

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


class Clients:
    """Each makes an order and confirms it, again and again until told to stop, or as many as they are
    allowed to; a request is sent until it is answered, always the same one."""

    def __init__(self, story, n=3, allowed=1 << 30):
        self.story, self.orders, self.tries, self.left = story, 0, 0, allowed
        self.stopped, self.lock = threading.Event(), threading.Lock()
        self.more = threading.Condition(self.lock)
        self.failed = []
        self.threads = [threading.Thread(target=self.run, args=(c,), daemon=True) for c in range(n)]
        for t in self.threads:
            t.start()

    def run(self, client):
        i = 0
        try:
            while self.take():
                i += 1
                made = self.send(f'make-{client}-{i}', '',
                                 {'customer_id': f'c-{client}', 'total_kopecks': 100 + i})
                self.send(f'confirm-{client}-{i}', f"/{made['id']}/confirm",
                          {'request_id': f'req-{client}-{i}'})
                with self.lock:
                    self.orders += 1
        except Exception as why:  # noqa: BLE001: told at the end
            self.failed.append(repr(why))

    def take(self):
        """One more order?  Waits for leave."""
        with self.more:
            while self.left == 0 and not self.stopped.is_set():
                self.more.wait()
            self.left -= 1
            return not self.stopped.is_set()

    def allow(self, n):
        with self.more:
            self.left += n
            self.more.notify_all()

    def send(self, key, path, body):
        def attempt():
            with self.lock:
                self.tries += 1
            conn = http.client.HTTPConnection('127.0.0.1', self.story.shop_port, timeout=20)
            try:
                conn.request('POST', '/api/v1/orders' + path, body=json.dumps(body), headers={
                    'Content-Type': 'application/json', 'Idempotency-Key': key})
                r = conn.getresponse()
                text = r.read()
                if r.status in (200, 201):
                    return json.loads(text)
                assert r.status in (409, 500, 503), (r.status, text)  # it runs, or the database is away
            except (OSError, http.client.HTTPException):
                pass  # the shop is away, or went while it answered
            finally:
                conn.close()
        return answered(attempt, timeout=120, what=f'{key} to be answered')

    def stop(self):
        with self.more:
            self.stopped.set()
            self.more.notify_all()
        for t in self.threads:
            t.join(300)
            assert not t.is_alive()
        assert not self.failed, self.failed

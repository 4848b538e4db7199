# SPDX-License-Identifier: Apache-2.0
"""The whole of it running: clients --> gateway --> shops --> outbox --> relays --> broker --> billing
--> payd, on a PostgreSQL and a Kafka that may be broken."""
import collections
import http.client
import json
import random
import sqlite3
import threading

from ports import free_port

from .kafka import consume_all
from .payd import Payd
from .relay import Relay
from .shop import Reply, Shop
from .wait import answered, wait_until

HEADERS = {'Content-Type': 'application/json', 'Host': 'shop.test'}
UNKNOWN = 3
PARTITIONS = 6


class Place:
    """Where clients send to: a shop, or the gateway before one."""

    def __init__(self, port):
        self.port, self.open, self.cut, self.lock = port, 0, 0, threading.Lock()

    def post(self, path, body, key, timeout):
        """The reply, or None: it was lost, or never came."""
        with self.lock:
            self.open += 1
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)
        try:
            conn.request('POST', path, json.dumps(body).encode(), {**HEADERS, 'Idempotency-Key': key})
            r = conn.getresponse()
            return Reply(r.status, r.getheaders(), r.read())
        except ConnectionRefusedError:
            return None
        except (OSError, http.client.HTTPException):
            with self.lock:
                self.cut += 1
            return None
        finally:
            conn.close()
            with self.lock:
                self.open -= 1


class Clients:
    """Each makes an order and confirms it, with one key and the same bytes until it is answered, at
    whichever place comes first.  `release(n)` lets n more orders begin."""

    def __init__(self, places, count, seed, timeout=3.0):
        self.places, self.seed, self.timeout = places, seed, timeout
        self.permits = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.next, self.begun, self.retries = 0, 0, 0
        self.confirmed, self.errors = {}, []  # order id -> (number, total, bytes of the reply)
        self.ending = False
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        for t in self.threads:
            t.start()

    def release(self, n):
        self.begun += n
        if n > 0:
            self.permits.release(n)

    def open(self):
        return self.begun - len(self.confirmed)

    def run(self, which):
        chance = random.Random(self.seed * 1000 + which)
        while True:
            self.permits.acquire()
            if self.ending:
                return
            with self.lock:
                self.next += 1
                number = self.next
            try:
                self.order(number, chance)
            except Exception as e:  # noqa: BLE001: told by the test, not by a thread that died
                self.errors.append(f'order {number}: {e!r}')
                return

    def order(self, number, chance):
        total = 100 + number
        made = self.until_answered(chance, '', {'customer_id': f'customer-{number % 7}',
                                               'total_kopecks': total}, f'make-{number}')
        order = made.json['id']
        done = self.confirm(chance, number, order)
        assert done.json['status'] == 'confirmed' and done.json['id'] == order
        self.confirmed[order] = (number, total, done.body)

    def confirm(self, chance, number, order):
        return self.until_answered(chance, f'/{order}/confirm', {'request_id': f'req-{number}'},
                                   f'confirm-{number}')

    def until_answered(self, chance, path, body, key):
        at = chance.randrange(len(self.places))

        def attempt():
            nonlocal at
            at = (at + 1) % len(self.places)  # not again where it was not answered
            r = self.places[at].post('/api/v1/orders' + path, body, key, self.timeout)
            if r is not None and r.status in (200, 201):
                return r
            # Anything that must not be tried again is a fault of ours.
            assert self.ending or r is None or r.status not in (400, 402, 404, 422), r
            self.retries += 1
            return None
        return answered(attempt, timeout=120, what=key, interval=0.03)

    def join(self):
        self.ending = True
        self.permits.release(len(self.threads))
        for t in self.threads:
            t.join(60)


class Part:
    """A process that is killed, stopped and started again under its name."""

    def __init__(self, name, start, place=None, user=None):
        self.name, self.place, self.user, self._start = name, place, user, start
        self.start()

    def start(self):
        self.process = self._start()

    def again(self):
        """Killed, with all that it has in hand, and started again."""
        self.process.kill()
        self.start()


class Story:
    def __init__(self, procs, build, pg, kafka, tmp, charge='event', shops=2, relays=2, billings=3,
                 seed=1):
        self.procs, self.build, self.pg, self.kafka = procs, build, pg, kafka
        self.ledger, self.charge, self.seed = str(tmp / 'ledger.db'), charge, seed
        self.shop_db, self.billing_db = pg.new_database(), pg.new_database()
        for db in (self.shop_db, self.billing_db):
            assert procs.run([build.semel, 'migrate', '--db', pg.url(db)]).returncode == 0
        self.users = self.sent_again = 0
        self.pay_port = free_port()
        self.payd = Part('payd', self.start_payd)
        self.shops = [self.new_shop() for _ in range(shops)]
        place = Place(free_port())
        self.gateway = Part('gateway', lambda: self.start_gateway(place.port), place)
        self.places = [s.place for s in [*self.shops, self.gateway]]
        self.relays, self.billings = [], []
        if charge == 'event':
            kafka.create_topic('orders', PARTITIONS)
            self.relays = [Part('relay', self.start_relay) for _ in range(relays)]
            self.billings = [self.new_billing() for _ in range(billings)]

    # -- the programs --------------------------------------------------------------------------
    def user(self):
        """A role of its own, so that one sees which process a transaction belongs to."""
        self.users += 1
        name = f'part{self.users}'
        self.pg.sql('postgres', f'CREATE ROLE {name} LOGIN SUPERUSER')
        return name

    def start_payd(self):
        return Payd(self.procs, self.build, self.ledger, port=self.pay_port, cut=0.05, fail=0.02,
                    slow=0.02, slow_ms=100, seed=self.seed).process

    def new_shop(self):
        place, user, pay = Place(free_port()), self.user(), {}
        if self.charge == 'direct':
            pay = {'pay_url': f'http://127.0.0.1:{self.pay_port}/charges'}

        def start():
            return Shop(self.procs, self.build.shop, self.pg.url(self.shop_db, user=user), 'transaction',
                        listen=f'127.0.0.1:{place.port}', charge=self.charge, wait_ms=1000, work_ms=2,
                        **pay).proc
        return Part('shop', start, place, user)

    def start_gateway(self, port):
        p = self.procs.start([self.build.semel, 'gateway', '--listen', f'127.0.0.1:{port}', '--upstream',
                              f'http://127.0.0.1:{self.shops[-1].place.port}', '--db',
                              self.pg.url(self.shop_db), '--idempotent', '--lease', '2s',
                              '--upstream-timeout', '1500ms', '--admin', '127.0.0.1:0'], name='gateway')
        p.wait_log(r'listening on', 20)
        return p

    def start_relay(self):
        r = Relay(self.procs, self.build, self.pg.url(self.shop_db), self.kafka.bootstrap, slot_lease='1s',
                  batch_rows=20, retry_min='20ms', retry_max='200ms')
        r.p.relay = r
        return r.p

    def new_billing(self):
        user = self.user()
        settings = ('batch-rows=10', 'kafka=session.timeout.ms=2000', 'kafka=heartbeat.interval.ms=200')
        argv = [self.build.path('billing'), '--db', self.pg.url(self.billing_db, user=user), '--brokers',
                self.kafka.bootstrap, '--pay-url', f'http://127.0.0.1:{self.pay_port}/charges',
                *(a for s in settings for a in ('--set', s))]
        return Part('billing', lambda: self.procs.start(argv, name='billing'), user=user)

    # -- what can be seen --------------------------------------------------------------------------
    def in_transaction(self, user=None):
        who = f"AND usename = '{user}'" if user else "AND pid <> pg_backend_pid()"
        return self.pg.value('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT '
                             f"NULL AND backend_type = 'client backend' {who}")

    def outbox(self):
        return self.pg.value(self.shop_db, 'SELECT count(*) FROM semel.outbox')

    def processed(self):
        return self.pg.value(self.billing_db, 'SELECT count(*) FROM semel.processed_event')

    def unpaid(self):
        """Connections to payd that are open: each is one charge on its way."""
        with open('/proc/net/tcp', encoding='ascii') as f:
            rows = [line.split() for line in f.readlines()[1:]]
        return sum(r[1].endswith(f':{self.pay_port:04X}') and r[3] == '01' for r in rows)

    def claims(self):
        """Keys that the gateway has claimed, not answered, and still has the lease of."""
        return self.pg.value(self.shop_db, 'SELECT count(*) FROM semel.command WHERE state = 1 AND '
                             'lease_until > clock_timestamp()')

    def charges(self):
        conn = sqlite3.connect(self.ledger, timeout=20)
        try:
            return conn.execute('SELECT order_id, amount, key FROM ledger').fetchall()
        finally:
            conn.close()

    def everybody(self):
        return [*self.shops, self.gateway, *self.relays, *self.billings, self.payd]

    # -- what must hold in the end -------------------------------------------------------------------
    def check(self, confirmed):
        """confirmed: {order id: total} as the clients were told it."""
        charges = self.charges()
        counts = collections.Counter(order for order, _, _ in charges)
        assert not [o for o, n in counts.items() if n > 1], 'doubled'
        assert set(counts) == set(confirmed), 'missing, or for no confirmed order'
        assert {o: amount for o, amount, _ in charges} == confirmed
        assert sum(amount for _, amount, _ in charges) == sum(confirmed.values())
        rows = dict(self.pg.sql(self.shop_db, 'SELECT status, count(*) FROM shop_order GROUP BY 1'))
        assert rows == {'confirmed': len(confirmed)}
        assert self.unknown() == 0 and self.outbox() == 0
        if self.charge == 'event':
            self.check_inbox(confirmed)

    def unknown(self):
        return self.pg.value(self.shop_db, f'SELECT count(*) FROM semel.command WHERE state = {UNKNOWN}')

    def check_inbox(self, confirmed):
        assert self.processed() == len(confirmed)
        for table in ('dead_letter', 'inbox_alarm'):
            assert self.pg.value(self.billing_db, f'SELECT count(*) FROM semel.{table}') == 0, table
        # Whoever was killed or too slow may have counted a try of what another has applied.
        assert self.pg.value(self.billing_db, 'SELECT count(*) FROM semel.inbox_attempt WHERE (consumer, '
                             'source, event_id) NOT IN (SELECT consumer, source, event_id FROM '
                             'semel.processed_event)') == 0, 'inbox_attempt'
        events = consume_all(self.kafka.bootstrap, 'orders', timeout=60)
        told = {key.decode() for _, _, key, _, _ in events}
        assert told == set(confirmed)
        self.sent_again = len(events) - len(told)
        ends = collections.Counter(p for p, *_ in events)
        assert self.kafka.committed('billing', 'orders', PARTITIONS) == {
            p: ends[p] if ends[p] else -1001 for p in range(PARTITIONS)}

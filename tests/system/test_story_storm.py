# SPDX-License-Identifier: Apache-2.0
"""The whole story under faults, on a real PostgreSQL and a real Kafka: orders are made and confirmed
through two shops and a gateway, two relays publish their events, billing charges a provider that cuts
5% of its replies after charging.  Every process is killed and is stopped for longer than anybody
waits for it, database and broker crash twice each, and members come to the group and leave it.

    SEMEL_STORM_ORDERS   how many orders (1,000; with a sanitizer 200)
    SEMEL_STORM_SEED     the seed to repeat

What must hold: the provider's ledger has each confirmed order exactly once, with its amount; nothing is
stuck, nothing is dead; a client that asks again is told what it was told before.  Every fault strikes
something that has unfinished work, which is looked at while it is stopped and cannot finish it."""
import collections
import os
import random
import time

import pytest

from support.binaries import FULL
from support.storm import Clients, Story
from support.wait import wait_until

pytestmark = pytest.mark.kafka

ORDERS = int(os.environ.get('SEMEL_STORM_ORDERS', '1000' if FULL else '200'))
SEED = int(os.environ.get('SEMEL_STORM_SEED', random.SystemRandom().randrange(1 << 32)))
CLIENTS, PASSED_BY = 16, 5


class Storm:
    def __init__(self, story, chance, orders, faults):
        self.s, self.chance, self.faults = story, chance, faults
        self.clients = Clients(story.places, CLIENTS, chance.randrange(1 << 32))
        self.left, self.share = orders, max(orders // (len(faults) + 1), 2)
        self.struck, self.rebalances = collections.Counter(), 0

    def run(self):
        began = time.monotonic()
        for fault in self.faults:
            print(f'{time.monotonic() - began:5.1f} s, {len(self.clients.confirmed)} confirmed, '
                  f'{self.clients.open()} open: {fault}')
            self.release(self.share)
            what, _, how = fault.partition(' ')
            getattr(self, what)(*([how] if how else []))
            self.struck[fault] += 1
        self.release(self.left)

    def release(self, n):
        self.clients.release(n)
        self.left = max(self.left - n, 0)

    def keep_busy(self):
        if self.clients.open() < 2:
            self.release(5)  # the clients are faster than the faults

    # -- who is struck --------------------------------------------------------------------------
    def catch(self, parts, unfinished):
        """Stop one of them at a moment when it has unfinished work."""
        def look():
            assert not self.clients.errors, self.clients.errors
            self.keep_busy()
            part = self.chance.choice(parts)
            part.process.stop()
            if unfinished(part):
                return part
            part.process.cont()
            return None
        return wait_until(look, timeout=60, what='unfinished work', interval=0.003)

    def strike(self, how, parts, unfinished, beyond):
        part = self.catch(parts, unfinished)
        if how == 'kill':
            part.again()
            return
        beyond(part)
        assert part.process.alive() and part.process.state() in 'Tt'
        part.process.cont()

    def pass_by(self, _=None):
        """The others go on without it: so many orders more are confirmed."""
        until = len(self.clients.confirmed) + PASSED_BY
        def look():
            if self.clients.open() < CLIENTS:
                self.release(5)
            return len(self.clients.confirmed) >= until
        wait_until(look, timeout=60, what='the others to go on')

    def shop(self, how):
        def unfinished(part):  # some clients' keys are in its transactions, not those of most
            direct = self.s.charge == 'direct'
            return part.place.open and (direct or 0 < self.s.in_transaction(part.user) <= CLIENTS // 2)
        self.strike(how, self.s.shops, unfinished, self.pass_by)

    def gateway(self, how):
        self.strike(how, [self.s.gateway], lambda _: self.s.claims(),
                    lambda _: wait_until(lambda: not self.s.claims(), timeout=30, what='its leases to end'))

    def payd(self, how):
        beyond = self.pass_by if self.s.charge == 'event' else lambda _: wait_until(
            lambda: self.s.unpaid() >= 3, timeout=30, what='charges that wait')
        self.strike(how, [self.s.payd], lambda _: self.s.unpaid(), beyond)

    def relay(self, how):
        def beyond(part):
            other, = (r for r in self.s.relays if r is not part)
            wait_until(lambda: other.process.relay.metric('semel_relay_owned_slots') == 16, timeout=30,
                       what='the other to take over')
        self.strike(how, self.s.relays, lambda _: self.s.outbox(), beyond)

    def billing(self, how):
        def beyond(part):
            others = [b for b in self.s.billings if b is not part]
            self.assigned(others, lambda: None)
        self.strike(how, self.s.billings, lambda p: self.s.in_transaction(p.user), beyond)

    def assigned(self, members, act):
        """Each of them is given partitions anew, after act()."""
        before = [(m, given(m)) for m in members]
        got = act()
        wait_until(lambda: all(given(m) > n for m, n in before), timeout=60, what='a rebalance')
        return got

    def member(self):
        """One joins the group and leaves it, each in the middle of everybody's work."""
        self.amid(self.unapplied)
        guest = self.assigned(self.s.billings, self.s.new_billing)
        guest.process.wait_log('assigned', 30)
        self.amid(self.unapplied)
        self.assigned(self.s.billings, lambda: self.ends(guest))
        self.rebalances += 2

    def ends(self, part):
        assert part.process.terminate(30) == 0, part.process.logs()

    def unapplied(self):
        return len(self.clients.confirmed) - self.s.processed()

    def database(self):
        self.amid(lambda: self.s.in_transaction() and self.clients.open())
        self.s.pg.restart('immediate')

    def broker(self):
        self.amid(lambda: self.s.outbox() and self.unapplied())
        self.s.kafka.restart(kill=True)

    def amid(self, work):
        """Wait for a moment with such work; there is always some to be done."""
        def look():
            self.keep_busy()
            return work()
        wait_until(look, timeout=60, what='unfinished work', interval=0.003)

    # -- the end ------------------------------------------------------------------------------------
    def settle(self):
        wait_until(lambda: self.clients.errors or self.clients.open() == 0, timeout=180,
                   what='all clients to be answered')
        self.clients.join()
        assert not self.clients.errors, self.clients.errors
        if self.s.charge == 'event':
            wait_until(lambda: self.s.outbox() == 0, timeout=60, what='the outbox to be empty')
            wait_until(lambda: self.unapplied() == 0, timeout=180, what='all events to be applied')

    def ask_again(self):
        """A key that was answered is answered with the same bytes, wherever."""
        some = self.chance.sample(sorted(self.clients.confirmed.items()), 20)
        for order, (number, _, body) in some:
            assert self.clients.confirm(self.chance, number, order).body == body

    def end(self):
        for part in self.s.everybody():
            self.ends(part)

    def check(self):
        self.s.check({o: total for o, (_, total, _) in self.clients.confirmed.items()})
        print(f'{len(self.clients.confirmed)} orders charged once, {self.clients.retries} requests sent again, '
              f'{self.s.sent_again} events sent again, {self.rebalances} rebalances beside the faults '
              f'{dict(self.struck)}')


def given(part):
    return part.process.err().count('assigned')


def storm(procs, build, pg, kafka, tmp, faults, orders, **options):
    print(f'seed {SEED}: SEMEL_STORM_SEED={SEED}')
    chance = random.Random(SEED)
    chance.shuffle(faults)
    story = Story(procs, build, pg, kafka, tmp, seed=chance.randrange(1 << 31), **options)
    world = Storm(story, chance, orders, faults)
    try:
        world.run()
        world.settle()
        if world.s.charge == 'event':
            assert world.rebalances == 20
        world.clients.ending = False
        world.ask_again()
        world.end()
        world.check()
    finally:
        world.clients.join()


def test_each_confirmed_order_is_charged_once_whatever_is_killed(procs, build, pg_own, kafka_own, tmp):
    everybody = ['shop', 'gateway', 'relay', 'billing', 'payd']
    faults = [f'{who} {how}' for who in everybody for how in ('kill', 'stop')]
    faults += ['database', 'broker'] * 2 + ['member'] * 10
    storm(procs, build, pg_own, kafka_own, tmp, faults, ORDERS)


def test_charged_directly_is_charged_once_too(procs, build, pg_own, tmp):
    faults = [f'{who} {how}' for who in ('shop', 'gateway', 'payd') for how in ('kill', 'stop')]
    storm(procs, build, pg_own, None, tmp, faults + ['database'], ORDERS // 4, charge='direct')

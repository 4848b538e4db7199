# SPDX-License-Identifier: Apache-2.0
"""Every order is charged once, whatever is told to end, or killed, at whatever moment."""
import os
import random
import signal
import threading

import pytest

from support.shop import Database
from support.story import Clients, Story
from support.wait import wait_until

pytestmark = pytest.mark.kafka
SEED = int(os.environ.get('SEMEL_SEED', random.randrange(1 << 30)))
MOMENTS = int(os.environ.get('SEMEL_MOMENTS', 60))


@pytest.fixture
def story(procs, build, tmp):
    print(f'seed {SEED}')
    return Story(procs, build, tmp, SEED, payd={'cut': 0.05, 'fail': 0.02})


def strike(story, clients, sig, check):
    """MOMENTS times, somebody gets `sig` at a random moment under load, and is started again."""
    struck = dict.fromkeys(story.process, 0)
    unfinished = 0
    for _ in range(MOMENTS):
        tries = clients.tries
        wait_until(lambda: clients.tries > tries + story.random.randrange(20), timeout=60)
        name = story.random.choice(sorted(struck))
        unfinished += story.unfinished()
        story.process[name].send(sig)
        check(story.process[name])
        struck[name] += 1
        story.start(name)
    clients.stop()
    story.settle()
    print(struck, f'{clients.orders} orders, {clients.tries} requests, {unfinished} strikes at unfinished work')
    line, code, text = story.check()
    assert code == 0 and line.endswith(f'{story.charged()} charges, 0 missing, 0 doubled'), text
    assert story.confirmed() == clients.orders > MOMENTS
    assert unfinished > 0


def test_sigterm_at_random_moments_loses_and_doubles_nothing(story):
    def ended(process):
        assert process.wait(26) == 0, process.logs()
    strike(story, Clients(story), signal.SIGTERM, ended)


def test_sigkill_at_random_moments_loses_and_doubles_nothing(story):
    def killed(process):
        assert process.wait(10) == -signal.SIGKILL
    strike(story, Clients(story), signal.SIGKILL, killed)


# --- a real Kafka, a real PostgreSQL, and everything at once -------------------------------------------

ORDERS = int(os.environ.get('SEMEL_ORDERS', 1000))


def faults(story, pg, kafka):
    """[(name, what to do)], in a random order."""
    def killed(name):
        def go():
            assert story.process[name].kill() == -signal.SIGKILL
            story.start(name)
        return go

    def paused(name):
        """Beyond the slot's lease, and the session of the group."""
        def go():
            story.process[name].stop()
            threading.Event().wait(story.random.choice((0.3, 6.5)))
            story.process[name].cont()
        return go

    out = [(f'{name} killed', killed(name)) for name in story.process for _ in range(3)]
    out += [(f'{name} paused', paused(name)) for name in ('relay', 'billing', 'shop') for _ in range(2)]
    out += [('database restarted', pg.restart)] * 2 + [('broker restarted', kafka.restart)] * 2
    story.random.shuffle(out)
    return out


def test_every_order_is_charged_once_whatever_fails(procs, build, tmp, semel, pg_own, kafka_own):
    print(f'seed {SEED}')
    urls = [pg_own.url(pg_own.new_database()) for _ in range(2)]
    for url in urls:
        assert semel('migrate', '--db', url).returncode == 0
    kafka_own.create_topic('orders', 6)
    story = Story(procs, build, tmp, SEED, {'cut': 0.05, 'fail': 0.02}, *urls, kafka_own.bootstrap)
    clients = Clients(story, 4, allowed=0)
    todo = faults(story, pg_own, kafka_own)
    each, allowed, struck = ORDERS // len(todo), 0, 0
    for name, fault in todo:
        clients.allow(each)
        allowed += each
        wait_until(lambda: clients.orders > allowed - each or clients.failed, timeout=120)
        struck += clients.orders < allowed or story.unfinished()
        print(f'{name} at {clients.orders} orders')
        fault()
    clients.allow(ORDERS - allowed)
    wait_until(lambda: clients.orders == ORDERS or clients.failed, timeout=120)
    clients.stop()
    story.settle(180)
    line, code, text = story.check()
    assert (line, code) == (f'ledger: {ORDERS} orders, {ORDERS} charges, 0 missing, 0 doubled', 0), text
    assert struck == len(todo), 'a fault struck when nothing was under way'
    for url in urls:
        assert Database(url).sql('', "SELECT count(*) FROM semel.outbox")[0][0] == 0

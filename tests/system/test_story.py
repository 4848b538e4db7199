# SPDX-License-Identifier: Apache-2.0
"""Every order is charged once, whatever is told to end, or killed, at whatever moment.  (On a real
PostgreSQL and Kafka, with everything at once: test_story_storm.py.)"""
import os
import random
import signal

import pytest

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

# SPDX-License-Identifier: Apache-2.0
"""What a gateway answers from memory, in one process with several workers: never what the store would not
say, and never for longer than a second after an operator has decided."""
import collections
import json
import time

import pytest

from support import upstream as up
from support.binaries import FULL
from support.wait import wait_until


def works_when_released(u, conn, request):
    conn.sendall(u.execute(request))
    return True


@pytest.fixture
def workers(start_gateway):
    """Each call is a connection of its own: the kernel spreads them over the four."""
    return start_gateway('--workers', '4')


def test_h1_duplicates_on_other_workers_find_the_one_that_runs(workers, upstream):
    upstream.plan.append(up.when(upstream.release, works_when_released))
    first = workers.background('k')
    assert upstream.reached.wait(10)
    heard = workers.post_parallel(40, 'k')
    assert collections.Counter((r.status, r.problem) for r in heard) == {(409, 'in-flight'): 40}
    assert workers.metric('semel_gateway_hot_hits_total') > 0
    upstream.release.set()
    assert first.result(20).status == 201
    again = workers.post_parallel(40, 'k')
    assert {(r.status, r.replayed, r.body) for r in again} == {(201, True, first.result().body)}
    assert upstream.effects['k'] == 1


def test_waiters_on_all_workers_hear_of_the_one_that_ends(workers, upstream):
    upstream.plan.append(up.when(upstream.release, works_when_released))
    first = workers.background('k')
    assert upstream.reached.wait(10)
    calls = [workers.background('k', headers=[('Prefer', 'wait=30')]) for _ in range(24)]
    wait_until(lambda: workers.metric('semel_gateway_waiters') == 24, timeout=20)
    upstream.release.set()
    assert {(c.result(20).status, c.result().replayed) for c in calls} == {(201, True)}
    assert first.result().status == 201 and upstream.effects['k'] == 1
    assert workers.metric('semel_gateway_waiters') == 0


def test_several_workers_drain_together(workers, upstream):
    upstream.plan += [up.when(upstream.release, works_when_released)] * 12
    calls = [workers.background(f'k{i}') for i in range(12)]
    wait_until(lambda: len(upstream.requests) == 12, timeout=20)
    workers.process.send(15)
    wait_until(lambda: 'draining' in workers.process.err())
    upstream.release.set()
    assert {c.result(20).status for c in calls} == {201}
    assert workers.process.wait(20) == 0 and upstream.total() == 12


def test_what_an_operator_releases_runs_again_within_a_second(start_gateway, semel, sqlite_url, upstream):
    """Also under a storm of retries that is answered from memory all the time."""
    gateway = start_gateway()
    first = gateway.post('k')
    assert first.status == 201 and gateway.post('k').replayed
    row, = map(json.loads, semel('keys', 'list', '--json', '--db', sqlite_url).out().splitlines())
    released = semel('keys', 'release', '--id', row['id'], '--yes', '--reason', 'again, please', '--db', sqlite_url)
    assert released.returncode == 0, released.logs()
    said = time.monotonic()
    again = wait_until(lambda: (r := gateway.post('k')) and not r.replayed and r, timeout=10)
    assert (again.status, upstream.effects['k']) == (201, 2)
    if FULL:
        assert time.monotonic() - said < 2


def test_a_reply_in_memory_is_not_believed_past_its_retention(start_gateway, upstream):
    gateway = start_gateway('--retention', '1s')
    first = gateway.post('k')
    kept = time.monotonic()
    assert first.status == 201
    second = gateway.post('k')
    if time.monotonic() - kept < 0.8:
        assert second.replayed
    wait_until(lambda: time.monotonic() - kept > 1.3)
    assert not gateway.post('k').replayed and upstream.effects['k'] == 2

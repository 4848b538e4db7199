# SPDX-License-Identifier: Apache-2.0
"""A command of the shop runs once per key: parallel callers, replays, other payloads, users."""
import itertools
import json
import socket
import time

import pytest

from support.shop import COMPLETED, PRODUCTS, SELLERS
from support.wait import answered, wait_until

BOTH = pytest.mark.parametrize('mode', ['reserve', 'transaction'])


def statuses(replies):
    return [r.status for r in replies]


def meet(shop, n):
    """(key, replies): n at the same moment, each time with a new key, until one of them ran and all others
    came while it did.  Who comes later on a busy machine is told 201 too, from the kept reply."""
    keys = (f'k-{i}' for i in itertools.count(42))

    def race():
        key = next(keys)
        replies = shop.create_parallel(n, key, key)
        assert set(statuses(replies)) <= {201, 409}, 'H4: a lost race is never a 5xx'
        assert shop.db.products(key) == 1
        return statuses(replies) == [201] + [409] * (n - 1) and (key, replies)
    return answered(race, timeout=60, what=f'{n} to meet')


def test_h1_five_parallel_in_reserve_one_201_four_409_one_row(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', work_ms=300)
    key, replies = meet(shop, 5)
    for r in replies[1:]:
        assert r.problem == 'in-flight' and r.json['retryable'] is True
        assert 1 <= int(r.header('Retry-After')) <= 60
        assert r.header('Idempotency-Outcome') == 'unknown'
    again = shop.create(key, key)
    assert again.replayed and again.kept() == replies[0].kept()


def test_h18_retry_after_is_never_longer_than_the_lease(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', work_ms=600, lease_ms=1500)
    keys = (f'k{i}' for i in itertools.count())
    losers = wait_until(lambda: [r for r in shop.create_parallel(4, key=next(keys)) if r.status == 409],
                        timeout=60, what='somebody to come while it runs')
    for r in losers:
        assert 1 <= int(r.header('Retry-After')) <= 2


def test_h1_five_parallel_in_transaction_all_get_the_winners_bytes(start_shop, store_url):
    shop = start_shop(store_url, 'transaction', work_ms=300, wait_ms=10000)
    replies = shop.create_parallel(5, key='k-42')
    assert statuses(replies) == [201] * 5
    assert len({r.body for r in replies}) == 1
    assert sorted(r.replayed for r in replies) == [False, True, True, True, True]
    assert shop.db.products('Widget') == 1


def test_h76_a_duplicate_in_transaction_waits_at_most_wait_ms(start_shop, store_url):
    shop = start_shop(store_url, 'transaction', work_ms=3000, wait_ms=300)
    winner = shop.background(lambda: shop.create(key='k'))
    shop.wait_running('transaction')
    for _ in range(2):
        asked = time.monotonic()
        r = shop.create('Widget', key='k')
        took = time.monotonic() - asked
        assert (r.status, r.problem) == (409, 'in-flight')
        assert int(r.header('Retry-After')) >= 1
        assert took > 0.25 and not winner.done(), f'waited {took}'
    assert winner.result(20).status == 201
    assert shop.db.products('Widget') == 1


def test_h76_a_duplicate_in_reserve_may_wait_for_the_reply(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', work_ms=400, wait_ms=10000)
    replies = shop.create_parallel(5, key='k')
    assert statuses(replies) == [201] * 5
    assert len({r.body for r in replies}) == 1
    assert shop.db.products('Widget') == 1


@BOTH
def test_h1_sixtyfour_callers_two_processes_one_key(start_shop, store_url, mode):
    shops = [start_shop(store_url, mode, work_ms=100, wait_ms=20000) for _ in range(2)]

    runs = [s.background(lambda s=s: s.create_parallel(32, key='k')) for s in shops]
    replies = [r for run in runs for r in run.result(60)]
    assert statuses(replies) == [201] * 64
    assert len({r.body for r in replies}) == 1
    assert sum(not r.replayed for r in replies) == 1
    assert shops[0].db.products('Widget') == 1


@BOTH
def test_h61_different_keys_with_one_payload_are_different_operations(start_shop, store_url, mode):
    shop = start_shop(store_url, mode, wait_ms=5000)
    ids = {shop.create(key=f'k{i}').json['id'] for i in range(4)}
    assert len(ids) == 4 and shop.db.products('Widget') == 4


def test_naive_runs_more_than_once(start_shop, store_url):
    shop = start_shop(store_url, 'naive', work_ms=300)
    replies = shop.create_parallel(5, key='k-42')
    assert set(statuses(replies)) == {201}
    assert shop.db.products('Widget') > 1, 'the tutorial\'s broken version must stay broken'


def test_naive_passes_the_sequential_test(start_shop, store_url):
    shop = start_shop(store_url, 'naive')
    first, again = shop.create(key='k'), shop.create(key='k')
    assert again.replayed and again.body == first.body
    assert shop.create('Gadget', key='k').status == 422
    assert shop.db.products('Widget') == 1


# --- replay fidelity ------------------------------------------------------------------------

@BOTH
def test_h21_h26_h28_a_replay_repeats_status_headers_and_bytes(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    first = shop.create(key='k')
    for _ in range(3):
        again = shop.create(key='k')
        assert again.header('Idempotent-Replayed') == 'true'
        assert again.header('Content-Length') == str(len(first.body))
        assert again.kept() == first.kept()
    assert first.header('Idempotent-Replayed') is None
    assert first.header('Location') and first.header('Content-Type') == 'application/json'
    state, _, status, body = shop.db.command('k')
    assert (state, status, bytes(body)) == (COMPLETED, 201, first.body), 'H17: in one write'


@BOTH
def test_h21_put_and_delete_replay_too(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    made = shop.create(key='k')
    path = f"{PRODUCTS}/{made.json['id']}"
    put = [shop.request('PUT', path, shop.product('Gadget'), key='put') for _ in range(2)]
    assert put[0].status == 200 and put[1].replayed and put[1].kept() == put[0].kept()
    gone = [shop.request('DELETE', path, key='del') for _ in range(2)]
    assert gone[0].status == 204 and gone[0].body == b'' and not gone[0].replayed
    assert gone[1].replayed and gone[1].kept() == gone[0].kept(), 'not a 404 on the retry'
    assert shop.create(key='k').body == made.body, 'kept, though the product has gone'


@BOTH
def test_h21_a_replay_outlives_the_process(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    first = shop.create(key='k')
    assert shop.proc.terminate() == 0
    shop = start_shop(store_url, mode)
    assert shop.create(key='k').kept() == first.kept()


# --- other payloads -------------------------------------------------------------------------

@BOTH
def test_h60_another_payload_is_422_and_names_the_first_operation(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    shop.create('Widget', key='k')
    r = shop.create('Gadget', key='k')
    assert (r.status, r.problem) == (422, 'key-reused')
    assert r.json['first_operation'] == 'POST /api/v1/products'
    assert 'POST /api/v1/products' in r.json['detail']
    assert b'Widget' not in r.body, 'the first payload is not told'
    assert shop.db.products('Gadget') == 0
    assert shop.create('Widget', key='k').replayed, 'the first one is still good'


@BOTH
def test_h40_one_key_on_two_operations_is_422(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    a, b = (shop.request('POST', SELLERS, {'name': n}).json['id'] for n in 'ab')
    assert shop.request('PUT', f'{SELLERS}/{a}', {'name': 'x'}, key='k').status == 200
    r = shop.request('PUT', f'{SELLERS}/{b}', {'name': 'x'}, key='k')
    assert (r.status, r.json['first_operation']) == (422, f'PUT {SELLERS}/{a}')
    assert shop.request('POST', SELLERS, {'name': 'x'}, key='k').status == 422
    assert shop.request('DELETE', f'{SELLERS}/{a}', key='k').status == 422


def test_h58_422_wins_over_409(start_shop, store_url):
    shop = start_shop(store_url, 'reserve', work_ms=1500)
    running = shop.background(lambda: shop.create('Widget', key='k'))
    shop.wait_claimed('k')
    assert shop.create('Gadget', key='k').status == 422
    assert shop.create('Widget', key='k').status == 409
    assert running.result(10).status == 201


def test_h54_spaces_and_the_order_of_members_are_no_other_request(start_shop, sqlite_url):
    shop = start_shop(sqlite_url, 'reserve')
    first = shop.create(key='k')
    body = b'{ "seller_id" : "%s",\n "currency":"EUR", "price_minor_units": 999, "name":"Widget"}'
    again = shop.request('POST', PRODUCTS, body % shop.seller.encode(), key='k')
    assert again.replayed and again.body == first.body


# --- users ----------------------------------------------------------------------------------

@BOTH
def test_h38_two_principals_never_share_a_key(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    ada, eve = ([('Authorization', f'Bearer {n}')] for n in ('ada', 'eve'))
    first = shop.create('Secret', key='k', headers=ada)
    other = shop.create('Secret', key='k', headers=eve)
    none = shop.create('Secret', key='k')
    assert [r.status for r in (first, other, none)] == [201] * 3
    assert len({first.body, other.body, none.body}) == 3
    assert not other.replayed and not none.replayed
    assert shop.create('Secret', key='k', headers=ada).body == first.body


def test_h45_the_principal_is_not_in_the_database(start_shop, sqlite_url, tmp):
    shop = start_shop(sqlite_url, 'reserve')
    shop.create(key='k', headers=[('Authorization', 'Bearer tell-nobody')])
    assert shop.proc.terminate() == 0
    for f in tmp.glob('semel.db*'):
        assert b'tell-nobody' not in f.read_bytes(), f
    assert 'tell-nobody' not in shop.proc.logs()


# --- failures of the command itself ------------------------------------------------------------

@BOTH
def test_h64_h69_a_refusal_is_not_kept_and_the_key_is_free(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    path = f'{SELLERS}/01890000-0000-7000-8000-000000000000'
    for _ in range(2):
        r = shop.request('PUT', path, {'name': 'x'}, key='k')
        assert (r.status, r.replayed) == (404, False)
    assert shop.create('Widget', key='k').status == 201, 'the same key, for anything'


@BOTH
def test_h68_a_client_that_has_gone_still_gets_its_reply_kept(start_shop, store_url, mode):
    shop = start_shop(store_url, mode, work_ms=500, wait_ms=10000)

    def leaves(key):
        """A client that goes when its command runs: without a reply, unless this was seen too late."""
        body = json.dumps(shop.product(key)).encode()
        with socket.create_connection(('127.0.0.1', shop.port)) as s:
            s.sendall(b'POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\n'
                      b'Content-Length: %d\r\n\r\n%s' % (PRODUCTS.encode(), key.encode(), len(body), body))
            wait_until(lambda: shop.db.command(key) or (mode == 'transaction' and shop.in_transaction()))
            s.setblocking(False)
            try:
                s.recv(1)
                return False
            except BlockingIOError:
                return True

    key = next(k for k in (f'k{i}' for i in range(20)) if leaves(k))
    r = shop.create(key, key)
    assert r.status == 201 and r.replayed
    assert shop.db.products(key) == 1

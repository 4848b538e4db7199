# SPDX-License-Identifier: Apache-2.0
"""Orders: confirmed once, and the event or the charge with it, on both databases."""
import concurrent.futures
import http.client
import json
import signal
import socket

import pytest

from ports import free_port
from support.payd import Payd
from support.upstream import Upstream, answers
from support.wait import wait_until

ORDERS = '/api/v1/orders'
GONE = (OSError, http.client.HTTPException)  # a connection that broke


def create(shop, total=4200, customer='customer-1', key=None):
    r = shop.request('POST', ORDERS, {'customer_id': customer, 'total_kopecks': total}, key)
    assert r.status == 201, r
    return r.json['id']


def confirm(shop, order, request_id='req-1', key=None):
    return shop.request('POST', f'{ORDERS}/{order}/confirm', {'request_id': request_id}, key)


def status(shop, order):
    return shop.request('GET', f'{ORDERS}/{order}').json['status']


def events(shop):
    """(event id, topic, key, payload as JSON) of each row of the outbox, in its order."""
    rows = shop.db.sql('SELECT event_id, topic, key, payload FROM semel_outbox ORDER BY id',
                       'SELECT event_id::text, topic, key, payload FROM semel.outbox ORDER BY id')
    return [(e if isinstance(e, str) else bytes(e).hex(), t,
             k if isinstance(k, str) else bytes(k).decode(), json.loads(bytes(p)))
            for e, t, k, p in rows]


def test_an_order_is_made_shown_and_listed(start_shop, store_url):
    shop = start_shop(store_url, 'transaction')
    first, again = (shop.request('POST', ORDERS, {'customer_id': 'c', 'total_kopecks': 5}, 'k')
                    for _ in range(2))
    assert first.status == 201 and again.replayed and again.body == first.body
    order = first.json
    assert (order['customer_id'], order['total_kopecks'], order['status'], order['request_id']) == (
        'c', 5, 'new', None)
    assert first.header('Location') == f"{ORDERS}/{order['id']}"
    assert shop.request('GET', first.header('Location')).json == order
    assert shop.request('GET', ORDERS).json == {'orders': [order], 'next': None}


@pytest.mark.parametrize('body, fields', [
    ({}, {'customer_id', 'total_kopecks'}),
    ({'customer_id': ' ', 'total_kopecks': 1}, {'customer_id'}),
    ({'customer_id': 'c' * 256, 'total_kopecks': 1}, {'customer_id'}),
    ({'customer_id': 'c', 'total_kopecks': 0}, {'total_kopecks'}),
    ({'customer_id': 'c', 'total_kopecks': 1.5}, {'total_kopecks'}),
    ({'customer_id': 'c', 'total_kopecks': 2**53}, {'total_kopecks'}),
    ({'customer_id': 'c', 'total_kopecks': 1, 'more': 1}, {'more'}),
])
def test_an_order_that_is_not_valid(start_shop, sqlite_url, body, fields):
    r = start_shop(sqlite_url).request('POST', ORDERS, body)
    assert (r.status, r.problem) == (400, 'validation')
    assert {e['field'] for e in r.json['errors']} == fields


def test_a_confirmation_that_is_not_valid(start_shop, store_url):
    shop = start_shop(store_url, 'transaction')
    order = create(shop)
    for body in ({}, {'request_id': ''}, {'request_id': 7}, {'request_id': 'r' * 129}):
        r = shop.request('POST', f'{ORDERS}/{order}/confirm', body)
        assert (r.status, r.problem) == (400, 'validation'), body
    absent = '01890000-0000-7000-8000-000000000001'
    assert confirm(shop, absent).problem == 'not-found'
    assert confirm(shop, 'x').status == 404
    assert shop.request('GET', f'{ORDERS}/{order}/confirm').status == 405
    assert shop.request('POST', f'{ORDERS}/{order}/pay', {}).status == 404
    assert status(shop, order) == 'new' and events(shop) == []


@pytest.mark.parametrize('mode', ['transaction', 'reserve', 'naive'])
def test_a_confirmed_order_has_one_event(start_shop, store_url, mode):
    shop = start_shop(store_url, mode)
    order = create(shop, 700, 'Ada')
    first = confirm(shop, order)
    assert first.status == 200 and first.json['status'] == 'confirmed'
    (event_id, topic, key, payload), = events(shop)
    assert (topic, key) == ('orders', order)
    assert payload.pop('id').replace('-', '') == event_id.replace('-', '')
    assert payload == {'type': 'OrderConfirmed', 'order_id': order, 'customer_id': 'Ada',
                       'total_kopecks': 700}
    again = confirm(shop, order)
    assert again.replayed and again.body == first.body
    assert len(events(shop)) == 1


def test_the_request_id_decides_not_the_key(start_shop, store_url):
    """A client that makes a new key for each attempt still confirms once."""
    shop = start_shop(store_url, 'transaction')
    order = create(shop)
    first = confirm(shop, order, key='attempt-1')
    again = confirm(shop, order, key='attempt-2')
    assert again.status == 200 and not again.replayed and again.json == first.json
    other = confirm(shop, order, 'req-2', key='attempt-3')
    assert (other.status, other.problem, other.json['order_status']) == (409, 'order-not-new',
                                                                          'confirmed')
    assert confirm(shop, order, 'req-2', key='attempt-1').problem == 'key-reused'
    assert len(events(shop)) == 1


@pytest.mark.parametrize('mode', ['transaction', 'reserve'])
def test_many_at_once_confirm_once(start_shop, store_url, mode):
    shop = start_shop(store_url, mode, wait_ms=5000)
    same, different = create(shop), create(shop)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        one = [pool.submit(confirm, shop, same, 'req-1') for _ in range(8)]
        many = [pool.submit(confirm, shop, different, f'req-{i}') for i in range(8)]
        assert [f.result().status for f in one] == [200] * 8
        assert sorted(f.result().status for f in many) == [200] + [409] * 7
    assert sorted(key for _, _, key, _ in events(shop)) == sorted([same, different])


def test_a_crash_leaves_order_and_event_or_neither(start_shop, store_url):
    shop = start_shop(store_url, 'transaction')
    order = create(shop)
    shop.proc.terminate()
    shop = start_shop(store_url, 'transaction', crash_after_effect=True)
    with pytest.raises(GONE):
        confirm(shop, order)
    assert shop.proc.wait(10) == -signal.SIGKILL
    shop = start_shop(store_url, 'transaction')
    assert status(shop, order) == 'new' and events(shop) == []
    assert confirm(shop, order).status == 200
    assert len(events(shop)) == 1


def test_a_crash_after_the_commit_in_mode_reserve_makes_no_second_event(start_shop, store_url):
    shop = start_shop(store_url, 'reserve')
    order = create(shop)
    shop.proc.terminate()
    shop = start_shop(store_url, 'reserve', crash_after_effect=True, lease_ms=500)
    with pytest.raises(GONE):
        confirm(shop, order)
    assert shop.proc.wait(10) == -signal.SIGKILL
    shop = start_shop(store_url, 'reserve', lease_ms=500)
    assert status(shop, order) == 'confirmed' and len(events(shop)) == 1
    wait_until(lambda: confirm(shop, order).status == 200, what='the lease to end')
    assert len(events(shop)) == 1


# --- charged directly --------------------------------------------------------------------------

@pytest.fixture
def start_payd(procs, build, tmp):
    return lambda **kw: Payd(procs, build, str(tmp / 'ledger.db'), **kw)


def direct(start_shop, url, payd, mode='transaction', **options):
    return start_shop(url, mode, charge='direct', pay_url=payd.url, **options)


def test_charged_directly_with_the_key_of_the_operation(start_shop, store_url, start_payd):
    payd = start_payd()
    shop = direct(start_shop, store_url, payd)
    order = create(shop, 990)
    first, again = confirm(shop, order), confirm(shop, order)
    assert first.status == 200 and again.replayed and again.body == first.body
    assert payd.charges() == [(f'{order}:charge:req-1', order, 990)]
    assert events(shop) == []
    assert confirm(shop, order, 'req-2').problem == 'order-not-new'
    assert len(payd.charges()) == 1


def test_replies_that_are_lost_after_the_charge_charge_once(start_shop, store_url, start_payd):
    payd = start_payd(cut=0.5, fail=0.2, busy=0.05, seed=11)
    shop = direct(start_shop, store_url, payd)
    orders = [create(shop, 100 + i) for i in range(20)]
    for order in orders:
        wait_until(lambda: confirm(shop, order).status == 200, timeout=60)
    assert sorted(payd.charges()) == sorted((f'{o}:charge:req-1', o, 100 + i)
                                            for i, o in enumerate(orders))


def test_an_outcome_that_nobody_knows_is_said_and_the_order_waits(start_shop, store_url, start_payd):
    payd = start_payd(cut=1, port=free_port())
    shop = direct(start_shop, store_url, payd, charge_ms=600)
    order = create(shop)
    r = confirm(shop, order)
    assert (r.status, r.problem, r.header('Idempotency-Outcome')) == (504, 'charge-unknown', 'unknown')
    assert status(shop, order) == 'charging' and len(payd.charges()) == 1
    assert confirm(shop, order, 'req-2').problem == 'order-not-new', 'it would be another charge'
    payd.process.kill()
    payd = start_payd(port=payd.port)
    assert confirm(shop, order).status == 200
    assert status(shop, order) == 'confirmed' and len(payd.charges()) == 1


def test_a_front_door_says_nothing_about_the_charge_before_it(start_shop, store_url, start_payd):
    """The charge is made and its reply is lost; then nobody gets as far as the provider's ledger."""
    statuses = (301, 307, 308, 401, 403, 407, 421)
    payd = start_payd(cut=1, port=free_port())
    shop = direct(start_shop, store_url, payd, charge_ms=600)
    order = create(shop)
    assert confirm(shop, order).problem == 'charge-unknown' and len(payd.charges()) == 1
    payd.process.kill()
    payd.process.wait()
    door = Upstream(port=payd.port)
    try:
        door.plan = [answers(b'HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n' % s) for s in statuses]
        for code in statuses:
            assert confirm(shop, order).problem == 'charge-unknown', code
            assert confirm(shop, order, 'req-2').problem == 'order-not-new', 'it would be another charge'
        assert len(door.requests) == len(statuses) and status(shop, order) == 'charging'
    finally:
        door.listener.shutdown(socket.SHUT_RDWR)  # a thread waits in accept()
        door.close()
    payd = start_payd(port=payd.port)
    assert confirm(shop, order).status == 200
    assert [key for key, _, _ in payd.charges()] == [f'{order}:charge:req-1']


def test_a_refused_charge_leaves_the_order_new(start_shop, store_url, start_payd):
    payd = start_payd(limit=100)
    shop = direct(start_shop, store_url, payd)
    order = create(shop, 101)
    r = confirm(shop, order)
    assert (r.status, r.problem) == (402, 'charge-refused')
    assert status(shop, order) == 'new' and payd.charges() == []


def test_two_that_confirm_one_order_directly_charge_once(start_shop, store_url, start_payd):
    """The order is taken for one request_id before anybody is called."""
    payd = start_payd(work_ms=200)
    shop = direct(start_shop, store_url, payd)
    order = create(shop)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = [pool.submit(confirm, shop, order, f'req-{i % 4}') for i in range(8)]
        statuses = sorted(f.result().status for f in done)
    assert statuses == [200, 200] + [409] * 6
    assert len(payd.charges()) == 1

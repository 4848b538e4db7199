# SPDX-License-Identifier: Apache-2.0
"""The shop as an HTTP service: resources, validation, the syntax of keys, limits."""
import contextlib
import socket

import pytest

from support.shop import PRODUCTS, SELLERS

NOBODY = '01890000-0000-7000-8000-000000000000'


@pytest.fixture(params=['reserve', 'transaction', 'naive'])
def any_mode(request):
    return request.param


@pytest.fixture
def shop(start_shop, sqlite_url):
    return start_shop(sqlite_url, 'reserve')


def test_seller_life(start_shop, store_url, any_mode):
    shop = start_shop(store_url, any_mode)
    made = shop.request('POST', SELLERS, {'name': 'Ada'})
    assert made.status == 201
    assert set(made.json) == {'id', 'name', 'created_at', 'updated_at'}
    where = made.header('Location')
    assert where == f"{SELLERS}/{made.json['id']}"
    assert shop.request('GET', where).json == made.json
    renamed = shop.request('PUT', where, {'name': 'Eve'}, key='rename')
    assert (renamed.status, renamed.json['name']) == (200, 'Eve')
    assert renamed.json['created_at'] == made.json['created_at']
    assert [s['name'] for s in shop.request('GET', SELLERS).json['sellers']] == ['Eve']
    assert shop.request('DELETE', where, key='delete').status == 204
    assert shop.request('GET', where).status == 404
    assert shop.request('GET', SELLERS).json == {'sellers': [], 'next': None}


def test_product_life(start_shop, store_url, any_mode):
    shop = start_shop(store_url, any_mode)
    made = shop.create('Widget', key='make')
    assert made.status == 201
    want = {'name': 'Widget', 'price_minor_units': 999, 'currency': 'EUR',
            'seller_id': shop.seller}
    assert {k: made.json[k] for k in want} == want
    where = made.header('Location')
    assert shop.request('GET', where).json == made.json
    changed = shop.request('PUT', where, shop.product('Gadget', price_minor_units=2**53 - 1,
                                                      currency='USD'))
    assert changed.status == 200
    assert changed.json['price_minor_units'] == 2**53 - 1
    assert shop.request('DELETE', f'{SELLERS}/{shop.seller}').problem == 'seller-in-use'
    assert shop.request('DELETE', where).status == 204
    assert shop.request('DELETE', where).problem == 'not-found'
    assert shop.request('PUT', where, shop.product()).problem == 'not-found'


def test_put_takes_the_id_of_the_body_when_the_path_has_none(shop):
    r = shop.request('PUT', SELLERS, {'id': shop.seller, 'name': 'Eve'})
    assert (r.status, r.json['name']) == (200, 'Eve')
    assert shop.request('PUT', SELLERS, {'name': 'Eve'}).problem == 'validation'
    r = shop.request('PUT', f'{SELLERS}/{shop.seller}', {'id': NOBODY, 'name': 'Eve'})
    assert r.problem == 'validation'


def test_a_product_of_no_seller_is_refused_and_its_key_stays_free(start_shop, store_url, any_mode):
    shop = start_shop(store_url, any_mode)
    r = shop.create('Widget', key='k', seller_id=NOBODY)
    assert (r.status, r.problem) == (422, 'no-such-seller')
    assert not r.replayed
    assert shop.create('Widget', key='k').status == 201, 'nothing happened: the key was released'


@pytest.mark.parametrize('fields, complaint', [
    ({'name': ''}, 'name'), ({'name': '  \t'}, 'name'), ({'name': None}, 'name'),
    ({'name': 7}, 'name'), ({'name': 'x' * 256}, 'name'), ({'name': 'é' * 128}, 'name'),
    ({'price_minor_units': 0}, 'price_minor_units'),
    ({'price_minor_units': -1}, 'price_minor_units'),
    ({'price_minor_units': 9.99}, 'price_minor_units'),
    ({'price_minor_units': '999'}, 'price_minor_units'),
    ({'price_minor_units': True}, 'price_minor_units'),
    ({'price_minor_units': 2**53}, 'price_minor_units'),
    ({'currency': 'eur'}, 'currency'), ({'currency': 'EURO'}, 'currency'),
    ({'currency': ''}, 'currency'),
    ({'seller_id': 'ada'}, 'seller_id'), ({'seller_id': NOBODY[:-1]}, 'seller_id'),
    ({'seller_id': NOBODY.replace('-', '')}, 'seller_id'),
    ({'colour': 'red'}, 'colour'),
])
def test_validation_names_the_field(shop, fields, complaint):
    r = shop.create('ok' if 'name' not in fields else fields['name'],
                    key='k', **{k: v for k, v in fields.items() if k != 'name'})
    assert (r.status, r.problem) == (400, 'validation')
    assert [e['field'] for e in r.json['errors']] == [complaint]
    assert shop.db.command('k') is None, 'checked before the claim'


def test_validation_names_every_field_at_once(shop):
    r = shop.request('POST', PRODUCTS, {'x': 1})
    assert [e['field'] for e in r.json['errors']] == ['name', 'price_minor_units', 'currency',
                                                      'seller_id', 'x']


@pytest.mark.parametrize('name', ['Grüße', '日本', '"; DROP TABLE shop_product; --', 'x' * 255,
                                  "O'Brien", '\\', '\U0001f600', 'a\tb'])
def test_names_come_back_as_they_were_sent(start_shop, store_url, name):
    shop = start_shop(store_url, 'transaction')
    first, again = shop.create(name, key='k'), shop.create(name, key='k')
    assert first.json['name'] == name
    assert again.replayed and again.kept() == first.kept()


@pytest.mark.parametrize('body', [b'', b'{', b'[]', b'"x"', b'{"name":"a","name":"b"}',
                                  b'{"name":"\xff"}', b'{"name":"a"} x', b'{"name":"a\\u0000b"}',
                                  b'[' * 5000, b'{"a":' * 100000], ids=lambda b: repr(b)[:20])
def test_a_body_that_is_no_json_object_is_400(shop, body):
    r = shop.request('POST', SELLERS, body, key='k')
    assert (r.status, r.problem) == (400, 'bad-json')


@pytest.mark.parametrize('content_type', ['text/plain', 'application/jsonx', '',
                                          'application/x-www-form-urlencoded'])
def test_another_content_type_is_415(shop, content_type):
    r = shop.request('POST', SELLERS, {'name': 'Ada'}, headers=[('Content-Type', content_type)])
    assert (r.status, r.problem) == (415, 'media-type')


@pytest.mark.parametrize('content_type', ['application/json; charset=utf-8', 'APPLICATION/JSON'])
def test_json_by_another_spelling_is_fine(shop, content_type):
    r = shop.request('POST', SELLERS, {'name': 'Ada'}, headers=[('Content-Type', content_type)])
    assert r.status == 201


@pytest.mark.parametrize('method, path, status, allow', [
    ('GET', '/', 404, None), ('GET', '/api/v1/sellersx', 404, None),
    ('GET', f'{SELLERS}/x', 404, None), ('GET', f'{SELLERS}/{NOBODY}/x', 404, None),
    ('GET', f'{SELLERS}/{NOBODY}', 404, None),
    ('PATCH', PRODUCTS, 405, 'POST, GET, PUT'), ('DELETE', PRODUCTS, 405, 'POST, GET, PUT'),
    ('POST', f'{PRODUCTS}/{NOBODY}', 405, 'GET, PUT, DELETE'),
])
def test_unknown_paths_and_methods(shop, method, path, status, allow):
    r = shop.request(method, path)
    assert (r.status, r.header('Allow')) == (status, allow)
    assert r.problem == {404: 'not-found', 405: 'method-not-allowed'}[status]


def test_lists_come_in_pages(shop):
    names = [f'p{i}' for i in range(5)]
    for n in names:
        assert shop.create(n).status == 201
    seen, url = [], f'{PRODUCTS}?limit=2'
    while url:
        page = shop.request('GET', url).json
        seen += [p['name'] for p in page['products']]
        url = page['next']
    assert seen == names, 'ids are by time'
    for bad in ('limit=0', 'limit=1001', 'limit=x', 'limit=', 'after=x'):
        assert shop.request('GET', f'{PRODUCTS}?{bad}').problem == 'validation'


# --- keys ----------------------------------------------------------------------------------

@pytest.mark.parametrize('key', [
    'k-42', 'a', '~', 'x' * 255, '"quoted"', '"with space"', r'"esc\"aped"', '"q";v=1',
    '8e03978e-40d5-43e8-bc93-6894a57f9324', "!#$%&'()*+-./:<=>?@[]^_`{|}~",
])
def test_h50_a_well_formed_key_is_taken(shop, key):
    first = shop.create(key=key)
    again = shop.create(key=key)
    assert first.status == 201 and again.replayed


def test_h50_quoted_and_bare_are_one_key_and_case_counts(shop):
    first = shop.create(key='abc')
    assert shop.create(key='"abc"').body == first.body
    assert shop.create(key='  abc\t').body == first.body
    assert not shop.create(key='ABC').replayed


@pytest.mark.parametrize('key', [
    '', '""', ' ', 'a, b', 'a;b', 'a b', 'a"b', '"a', 'a\\b', '"a\\b"', '"a" "b"', '"a", "b"',
    'x' * 256, '"' + 'x' * 256 + '"', 'x' * 8000, 'caf\xe9', '\x7f',
    '"tab\there"', "'; DROP TABLE semel_command; --", '%', ],
    ids=lambda k: repr(k)[:30])
def test_h45_h46_h48_a_malformed_key_is_400_never_500(shop, key):
    r = shop.create(key=key)
    if key == '%':  # a fine bare key: the table must be able to fail
        assert r.status == 201
        return
    assert (r.status, r.problem) == (400, 'key-malformed'), r
    assert shop.db.products('Widget') == 0
    assert len(key) < 6 or key not in r.body.decode('latin-1'), 'the key is not echoed'


def test_h48_two_key_lines_are_one_key_when_equal_else_400(shop):
    assert shop.create(key='k', headers=[('Idempotency-Key', 'k')]).status == 201
    assert shop.create(key='k').replayed
    assert shop.create(key='k', headers=[('Idempotency-Key', 'l')]).problem == 'key-malformed'


def test_h48_a_key_named_in_connection_is_400(shop):
    r = shop.create(key='k', headers=[('Connection', 'close, Idempotency-Key')])
    assert r.problem == 'key-malformed'


def raw(shop, data):
    with socket.create_connection(('127.0.0.1', shop.port), 5) as s:
        got = b''
        with contextlib.suppress(OSError):  # it may have closed before it has read all
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while chunk := s.recv(65536):
                got += chunk
        return got


def test_h48_control_bytes_in_a_key_run_nothing(shop):
    body = b'{"name":"Nul"}'
    # Not NUL: libmicrohttpd 0.9.75 ends the value there, before anybody can see it.
    for key in (b'a\x01b', b'\xff\xfe', b'a\rb', b'a\x1b[31mb', b'\xc3\xa9'):
        got = raw(shop, b'POST /api/v1/sellers HTTP/1.1\r\nHost: x\r\nContent-Type: application/json'
                        b'\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s'
                  % (key, len(body), body))
        assert got == b'' or b' 400 ' in got.split(b'\r\n')[0], got
    assert b'Nul' not in shop.request('GET', SELLERS).body


def test_the_body_field_is_a_key_and_the_header_wins(shop):
    first = shop.create(idempotency_key='in-body')
    assert shop.create(idempotency_key='in-body').replayed
    assert shop.create(key='in-body').replayed, 'header or body: one key'
    other = shop.create(key='in-header', idempotency_key='in-body')
    assert other.status == 201 and other.json['id'] != first.json['id']
    assert shop.create(key='in-header').replayed, 'the field is no part of the request'


@pytest.mark.parametrize('value', ['', 7, None, [], 'a, b', 'x' * 256])
def test_h48_a_malformed_key_in_the_body_is_400(shop, value):
    assert shop.create(idempotency_key=value).problem == 'key-malformed'
    assert shop.db.products('Widget') == 0


def test_no_key_runs_every_time_and_shares_no_bucket(start_shop, store_url, any_mode):
    shop = start_shop(store_url, any_mode)
    for _ in range(3):
        r = shop.create('Bolt')
        assert r.status == 201 and not r.replayed
    assert shop.db.products('Bolt') == 3


def test_h51_a_key_on_get_and_head_is_ignored(shop):
    for method in ('GET', 'HEAD'):
        for _ in range(2):
            r = shop.request(method, PRODUCTS, key='on-get')
            assert (r.status, r.replayed) == (200, False)
    assert shop.db.command('on-get') is None


# --- limits --------------------------------------------------------------------------------

def test_h32_a_body_over_1_mib_is_413_before_any_claim(shop):
    r = shop.request('POST', SELLERS, b'{"name":"' + b'x' * (1024 * 1024) + b'"}', key='big')
    assert (r.status, r.problem) == (413, 'body-too-large')
    assert shop.db.command('big') is None
    chunked = (b'POST /api/v1/sellers HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n'
               b'Transfer-Encoding: chunked\r\n\r\n' + (b'10000\r\n' + b' ' * 65536 + b'\r\n') * 17
               + b'0\r\n\r\n')
    assert b' 413 ' in raw(shop, chunked).split(b'\r\n')[0]


def test_h33_a_body_below_1_mib_is_read_to_its_end(shop):
    pad = b' ' * (1024 * 1024 - 100)
    r = shop.request('POST', SELLERS, b'{"name":' + pad + b'"Ada"}', key='k')
    assert r.status == 201
    r = shop.request('POST', SELLERS, b'{"name":' + pad + b'"Eve"}', key='k')
    assert r.problem == 'key-reused', 'the difference is behind the first megabyte'


def test_h48_an_oversized_header_is_an_error_of_the_client(shop):
    got = raw(shop, b'POST /api/v1/sellers HTTP/1.1\r\nHost: x\r\nIdempotency-Key: '
              + b'x' * 100000 + b'\r\n\r\n')
    assert got == b'' or got.split(b' ')[1].startswith(b'4')
    assert shop.request('GET', SELLERS).status == 200


@pytest.mark.parametrize('argv, words', [
    ([], '--store'), (['--store', 'memory:'], 'sqlite:PATH'), (['--store', 'nonsense'], 'sqlite:'),
    (['--store', 'sqlite:x', '--mode', 'fast'], 'fast'),
    (['--store', 'sqlite:x', '--lease-ms', '0'], '0'),
    (['--store', 'sqlite:x', '--lease-ms', '60s'], '60s'),
    (['--store', 'sqlite:x', '--wait-ms', '30001'], '30001'),
    (['--store', 'sqlite:x', 'extra'], 'extra'),
    (['--store', 'sqlite:/nowhere/at/all/x.db'], 'nowhere'),
    (['--store', 'postgres://127.0.0.1:1/x'], 'refused'),
    (['--store', 'sqlite:x.db', '--listen', 'nonsense'], 'HOST:PORT'),
])
def test_h6_a_wrong_command_line_is_one_sentence(build, procs, tmp, argv, words):
    p = procs.run([build.shop, *argv], cwd=tmp)
    assert p.returncode in (64, 69)
    assert words in p.err() and p.err().count('\n') == 1


def test_help_names_every_option(build, procs):
    p = procs.run([build.shop, '--help'])
    assert p.returncode == 0
    for word in ('--listen', '--store', '--mode', '--lease-ms', '--work-ms', '--wait-ms',
                 '--crash-after-effect', 'reserve', 'transaction', 'naive'):
        assert word in p.out()

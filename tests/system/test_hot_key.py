# SPDX-License-Identifier: Apache-2.0
"""What a storm of retries on one key costs the database (H19)."""
import concurrent.futures

import pytest

RETRIES = 320
WAL_BYTES_MAX = 16 * 1024  # far below one row's worth for each retry; the server notes things itself


def wal_since(pg, db, lsn):
    return int(pg.value(db, 'SELECT pg_current_wal_insert_lsn() - %s::pg_lsn', (lsn,)))


@pytest.mark.parametrize('mode', ['reserve', 'transaction'])
def test_h19_retries_of_a_finished_key_write_nothing(start_shop, pg, pg_db, semel, mode):
    url = pg.url(pg_db)
    assert semel('migrate', '--db', url).returncode == 0
    shop = start_shop(url, mode)
    first = shop.create(key='hot')
    assert first.status == 201
    body = shop.product()

    before = pg.value(pg_db, 'SELECT pg_current_wal_insert_lsn()')
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(
            lambda _: shop.request('POST', '/api/v1/products', body, 'hot'), range(RETRIES)))
    wal = wal_since(pg, pg_db, before)

    assert {(r.status, r.body, r.replayed) for r in replies} == {(201, first.body, True)}
    assert wal < WAL_BYTES_MAX, f'{wal / RETRIES:.0f} bytes of WAL for each retry'

    assert shop.create(key='another').status == 201
    assert wal_since(pg, pg_db, before) > wal, 'this measure sees writes'

# SPDX-License-Identifier: Apache-2.0
"""What a storm of retries on one key costs the database (H19)."""
import concurrent.futures

import pytest

RETRIES, ROUNDS = 320, 3
WAL_BYTES_MAX = 16 * 1024  # far below one row's worth for each retry


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

    def wal_of_retries():
        before = pg.value(pg_db, 'SELECT pg_current_wal_insert_lsn()')
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(
                lambda _: shop.request('POST', '/api/v1/products', body, 'hot'), range(RETRIES)))
        assert {(r.status, r.body, r.replayed) for r in replies} == {(201, first.body, True)}
        return wal_since(pg, pg_db, before)

    # The log is the whole server's: it notes things of its own (autovacuum, a checkpoint) now and then.
    wal = min(wal_of_retries() for _ in range(ROUNDS))
    assert wal < WAL_BYTES_MAX, f'{wal / RETRIES:.0f} bytes of WAL for each retry'

    before = pg.value(pg_db, 'SELECT pg_current_wal_insert_lsn()')
    assert shop.create(key='another').status == 201
    assert wal_since(pg, pg_db, before) > 0, 'this measure sees writes'

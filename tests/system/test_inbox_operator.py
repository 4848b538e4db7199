# SPDX-License-Identifier: Apache-2.0
"""`semel inbox`, without a consumer that runs: prune (O70), and a letter applied here and now."""
import json
import re
import sqlite3
import time

import pytest

DAY_US = 86_400_000_000


@pytest.mark.parametrize('kind', ['postgres', 'sqlite'])
def test_o70_records_of_ones_own_are_forgotten_by_an_operator(pg, pg_db, pg_store_url, sqlite_url, semel, kind):
    url = pg_store_url if kind == 'postgres' else sqlite_url
    assert semel('migrate', '--db', url).returncode == 0
    if kind == 'postgres':
        pg.psql(pg_db, """INSERT INTO semel.processed_event (consumer, source, event_id, processed_at)
                          SELECT c, 's', i::text, now() - CASE WHEN i <= 1500 THEN interval '20 days' ELSE '0' END
                          FROM unnest('{ledger,other}'::text[]) c, generate_series(1, 1510) i;
                          ANALYZE semel.processed_event""")
        plan = pg.psql(pg_db, """EXPLAIN SELECT 1 FROM semel.processed_event WHERE consumer = 'ledger'
                                 AND processed_at < now() - interval '15 days' ORDER BY processed_at LIMIT 10""")
        assert re.search(r"Index Cond: .*consumer.*processed_at", plan), plan  # not over the rows of others
    else:
        with sqlite3.connect(sqlite_url.removeprefix('sqlite:')) as db:
            now = int(time.time() * 1e6)
            db.executemany('INSERT INTO semel_processed_event (consumer, source, event_id, processed_us) '
                           'VALUES (?, ?, ?, ?)', [(c, 's', str(i), now - (20 * DAY_US if i <= 1500 else 0))
                                                   for c in ('ledger', 'other') for i in range(1, 1511)])
    r = semel('inbox', 'prune', '--db', url)
    assert r.returncode == 64 and 'name whose records' in r.err()
    r = semel('inbox', 'prune', '--consumer', 'ledger', '--db', url)
    assert r.returncode == 0 and '1500 events forgotten' in r.logs()
    left = {line['consumer']: line['processed'] for line in
            map(json.loads, semel('inbox', 'status', '--json', '--db', url).out().splitlines())}
    assert left == {'ledger': 10, 'other': 1510}


def test_d3_a_letter_is_applied_here_and_now(pg, pg_db, pg_store_url, semel):
    assert semel('migrate', '--db', pg_store_url).returncode == 0
    pg.psql(pg_db, """CREATE TABLE effect (id text NOT NULL, payload text);
                      INSERT INTO semel.dead_letter (consumer, source, event_id, topic, payload, headers, reason,
                                                     kafka_partition, kafka_offset, attempts)
                      SELECT 'c', 's', 'e' || i, 't', 'x', '[]', 'because', 0, i, 3 FROM generate_series(1, 2) i""")
    first, second = (int(i) for i in pg.psql(pg_db, 'SELECT id FROM semel.dead_letter ORDER BY id').split())

    def retry(letter, sql):
        return semel('inbox', 'retry', str(letter), '--sql', sql, '--db', pg_store_url)
    states = 'SELECT state, attempts FROM semel.dead_letter ORDER BY id'
    r = retry(first, 'INSERT INTO effect VALUES (NULLIF($3, $3), $2)')
    assert r.returncode == 65 and 'it failed again' in r.err() and 'null value' in r.err()
    assert pg.psql(pg_db, states) == '0|4\n0|3\n'
    assert retry(first, 'INSERT INTO effect VALUES ($3, $2)').returncode == 0
    r = retry(first, 'INSERT INTO effect VALUES ($3, $2)')
    assert r.returncode == 65 and f'no letter {first} that is DEAD or RETRY' in r.err()
    assert pg.psql(pg_db, states) == '2|5\n0|3\n'
    assert pg.psql(pg_db, 'SELECT * FROM effect') == 'e1|x\n'
    assert retry(second, 'SELECT nonsense($1)').returncode != 0
    assert pg.psql(pg_db, states) == '2|5\n0|3\n', 'a statement that does not prepare is a try'

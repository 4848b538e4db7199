#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One table or a reply table: what a claim and its completion cost in each layout.

    tests/support/with_postgres -- bench/pg_layout.py [BATCHES]

For each layout and size of reply: BATCHES batches of 64 keys are claimed (one INSERT) and
completed (one statement that locks and updates), each its own transaction.  Printed: claims and
completions per second, WAL bytes and disk bytes per key, and the share of updates that were
HOT.  The choice and its reasons: docs/adr/0007-one-table-for-row-and-reply.md.
"""
import os
import subprocess
import sys
import time

BATCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 300
BATCH = 64
PSQL = [os.environ['SEMEL_TEST_PG_BIN'] + '/psql', os.environ['SEMEL_TEST_PG_SOCKET'], '-XqAt',
        '-v', 'ON_ERROR_STOP=1']
COMMAND = """
CREATE TABLE l.command (
  id bytea PRIMARY KEY, state smallint NOT NULL, token bigint NOT NULL, attempt bytea NOT NULL,
  fingerprint bytea NOT NULL, policy smallint NOT NULL, maybe_executed boolean NOT NULL,
  lease_until timestamptz NOT NULL, lease_len bigint NOT NULL, claimed_at timestamptz NOT NULL,
  request_until timestamptz NOT NULL, retention bigint NOT NULL, expire_at timestamptz,
  created_at timestamptz NOT NULL, mode smallint NOT NULL, scope bytea NOT NULL,
  operation bytea NOT NULL, key bytea NOT NULL, holder bytea NOT NULL{extra}
) WITH (fillfactor = {ff}, autovacuum_enabled = off);
CREATE INDEX ON l.command (created_at);
"""
REPLY_COLUMNS = ", status integer, flags integer, headers bytea, body bytea"
REPLY = """
CREATE TABLE l.reply (id bytea NOT NULL, attempt bytea NOT NULL, status integer NOT NULL,
  flags integer NOT NULL, headers bytea NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (id, attempt)) WITH (autovacuum_enabled = off);
"""
CLAIM = """
INSERT INTO l.command (id, state, token, attempt, fingerprint, policy, maybe_executed, lease_until,
  lease_len, claimed_at, request_until, retention, created_at, mode, scope, operation, key, holder)
SELECT sha256(('{b}-' || i)::bytea), 1, 1, substr(sha256(('a{b}-' || i)::bytea), 1, 16),
  sha256('f'::bytea), 0, false, t + interval '60 s', 60000000, t, t + interval '60 s', 86400000000,
  t, 0, 'shop', 'POST /api/v1/sellers', '6f1e2a34-0000-4000-8000-00000000000{b}', 'host 1234 boot'
FROM generate_series(1, {n}) i, clock_timestamp() t ORDER BY 1;
"""
LOCK = """
WITH op AS (SELECT sha256(('{b}-' || i)::bytea) AS id FROM generate_series(1, {n}) i),
locked AS MATERIALIZED (SELECT c.id, c.attempt FROM l.command c JOIN op USING (id)
  ORDER BY c.id FOR UPDATE OF c)
"""
ONE = LOCK + """
UPDATE l.command c SET state = 2, expire_at = clock_timestamp() + interval '1 day', status = 201,
  flags = 0, headers = decode(repeat('68', {h}), 'hex'), body = decode(repeat('62', {size}), 'hex')
FROM locked k WHERE c.id = k.id;
"""
TWO = LOCK + """
, kept AS (INSERT INTO l.reply SELECT id, attempt, 201, 0, decode(repeat('68', {h}), 'hex'),
  decode(repeat('62', {size}), 'hex') FROM locked)
UPDATE l.command c SET state = 2, expire_at = clock_timestamp() + interval '1 day'
FROM locked k WHERE c.id = k.id;
"""


def psql(script: str) -> str:
    done = subprocess.run(PSQL, input=script, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.strip()


def measure(two: bool, ff: int, size: int) -> list:
    external = '' if two else 'ALTER TABLE l.command ALTER body SET STORAGE EXTERNAL;'
    psql('DROP SCHEMA IF EXISTS l CASCADE; CREATE SCHEMA l;' +
         COMMAND.format(ff=ff, extra='' if two else REPLY_COLUMNS) +
         (REPLY + 'ALTER TABLE l.reply ALTER body SET STORAGE EXTERNAL;' if two else external) +
         'CHECKPOINT;')
    before = psql('SELECT pg_current_wal_lsn()')
    script = ''.join(CLAIM.format(b=b, n=BATCH) + (TWO if two else ONE).format(
        b=b, n=BATCH, size=size, h=120) for b in range(BATCHES))
    started = time.monotonic()
    stat = psql(script + "SELECT pg_read_file('/proc/self/stat', 0, 4096)").rpartition(')')[2].split()
    seconds = time.monotonic() - started
    cpu_us = (int(stat[11]) + int(stat[12])) * 1e6 / os.sysconf('SC_CLK_TCK')
    keys = BATCH * BATCHES
    wal = int(psql(f"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '{before}')::bigint"))
    disk = int(psql("SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c "
                    "WHERE relnamespace = 'l'::regnamespace AND relkind = 'r'"))
    hot = psql("SELECT pg_stat_force_next_flush(); SELECT round(100.0 * n_tup_hot_upd / n_tup_upd) "
               "FROM pg_stat_user_tables WHERE schemaname = 'l' AND relname = 'command'")
    return [round(keys / seconds), round(cpu_us / keys, 1), wal // keys, disk // keys, hot.split()[-1] + '%']


def main() -> None:
    print(f'{"layout":<22}{"body":>7}{"keys/s":>9}{"CPU us/key":>12}{"WAL B/key":>11}{"disk B/key":>12}{"HOT":>6}')
    for size in (0, 200, 1000, 2000, 8000):
        for two, ff in ((False, 70), (False, 50), (False, 30), (True, 70), (True, 50)):
            name = f'{"command + reply" if two else "one table"}, ff {ff}'
            row = measure(two, ff, size)
            print(f'{name:<22}{size:>7}{row[0]:>9}{row[1]:>12}{row[2]:>11}{row[3]:>12}{row[4]:>6}', flush=True)


if __name__ == '__main__':
    main()

-- In the caller's transaction: the next statement waits at most $1 milliseconds for one lock and
-- takes at most $2 in all (lock_timeout begins anew with each holder); what was set is kept
-- for tx_restore.
SELECT pg_catalog.set_config('semel.lock_timeout', pg_catalog.current_setting('lock_timeout'), true),
       pg_catalog.set_config('semel.statement_timeout',
                             pg_catalog.current_setting('statement_timeout'), true),
       pg_catalog.set_config('lock_timeout', $1, true),
       pg_catalog.set_config('statement_timeout', $2, true)

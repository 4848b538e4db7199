-- The caller's limits as they were before tx_limits.
SELECT pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('semel.lock_timeout'), true),
       pg_catalog.set_config('statement_timeout',
                             pg_catalog.current_setting('semel.statement_timeout'), true)

-- For this transaction only: a stopped consumer must not hold its successor (rule D4).
-- $1 the lock timeout, $2 the timeout of a transaction that idles.
SELECT pg_catalog.set_config('lock_timeout', $1, true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true),
       pg_catalog.set_config('synchronous_commit',
                             CASE pg_catalog.current_setting('synchronous_commit')
                             WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)

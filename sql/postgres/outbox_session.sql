-- Settings of a session, or of one transaction where a pooler may be in between (rule B7); and plans
-- that stay good however small the table was when it was analysed (O44).  Another than read committed
-- would give 40001 (O50).  A session that stops with a transaction open is ended before its
-- slots are somebody else's (rule C6).
-- $1 lock timeout, $2 idle transaction timeout, $3 only for this transaction.
SELECT set_config('lock_timeout', $1, $3),
       set_config('idle_in_transaction_session_timeout', $2, $3),
       set_config('default_transaction_isolation', 'read committed', $3),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, $3),
       set_config('jit', 'off', $3),
       set_config('enable_seqscan', 'off', $3),
       set_config('enable_bitmapscan', 'off', $3),
       set_config('enable_hashjoin', 'off', $3),
       set_config('enable_mergejoin', 'off', $3),
       set_config('plan_cache_mode', 'force_generic_plan', $3)

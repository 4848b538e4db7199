-- Settings of a session that is ours alone (no pooler): what batch_isolation and batch_settings
-- set for one transaction elsewhere; and plans that stay good when a small table grows.
-- $1 the lock timeout.
SELECT set_config('lock_timeout', $1, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
       set_config('jit', 'off', false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)

-- For this transaction only (rules B2, B7).  $1 the lock timeout.
SELECT set_config('lock_timeout', $1, true),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)

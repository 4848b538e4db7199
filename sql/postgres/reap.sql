-- Our own backends that wait for the rest of a half-sent batch while they hold its locks: no timeout
-- of the server is armed there (rule B3).  $1 after how many microseconds.
SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE usesysid = (SELECT usesysid FROM pg_stat_activity WHERE pid = pg_backend_pid())
  AND application_name LIKE 'semel/%' AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead'
  AND xact_start < clock_timestamp() - $1 * interval '1 microsecond'

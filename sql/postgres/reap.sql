-- Our own backends that wait for the rest of a half-sent batch while they hold its locks: no timeout
-- of the server is armed there (rule B3).  Those of the same role and database: that is what any role
-- may see and end.  From the last message on: a transaction may be long, a pause inside one may not.
-- $1 after how many microseconds.
SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE usesysid = (SELECT usesysid FROM pg_stat_activity WHERE pid = pg_backend_pid())
  AND datname = current_database() AND pid <> pg_backend_pid()
  AND (application_name LIKE 'semel/%' OR application_name LIKE 'semel relay %'
       OR application_name = 'semel outbox')
  AND state = 'active' AND wait_event = 'ClientRead'
  AND state_change < clock_timestamp() - $1::bigint * interval '1 microsecond'

-- What a new connection must know: settings that would lose a promise, whether the server takes
-- writes, and the true backend (another than the protocol told: there is a pooler in between).
SELECT current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
       pg_backend_pid()

-- ?1 rowid.  Label and reply; status is NULL when none is kept.
SELECT mode, scope, operation, key, holder, status, reply_flags, headers, body
FROM semel_command WHERE rowid = ?1

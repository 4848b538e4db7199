-- The purge: the whole predicate again, beside the decision that was made on the row (A9).
-- ?1 rowid, ?2 token, ?3 now on the file's calendar.
DELETE FROM semel_command
WHERE rowid = ?1 AND token = ?2 AND state IN (0, 2) AND expire_us <= ?3

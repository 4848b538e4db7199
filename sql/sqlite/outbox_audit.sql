-- What an operator did.  ?1 wall clock, ?2 verb, ?3 who, ?4 why, ?5 state before, ?6 state after,
-- ?7 the one row (NULL: several), which is still there, ?8 how many.
INSERT INTO semel_audit
  (at_us, id, key, verb, reason, who, state_before, state_after, subject, row_id, row_count)
VALUES (?1, CAST(coalesce((SELECT event_id FROM semel_outbox WHERE id = ?7), '') AS BLOB),
        (SELECT key FROM semel_outbox WHERE id = ?7), ?2, ?4, ?3, ?5, ?6, 'semel_outbox', ?7, ?8)

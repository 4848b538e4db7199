-- The audit rows of outbox_retry.sql, before it.  ?1 id (0: all), ?2 at most so many, ?3 wall clock, ?4 who.
INSERT INTO semel_audit (at_us, id, key, verb, reason, who, state_before, state_after)
SELECT ?3, CAST(event_id AS BLOB), key, 'outbox retry', last_error, ?4, 'DEAD', 'PENDING'
FROM semel_outbox WHERE status = 'DEAD' AND (?1 = 0 OR id = ?1) ORDER BY id LIMIT ?2

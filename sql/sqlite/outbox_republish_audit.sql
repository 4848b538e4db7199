-- The audit rows of outbox_republish.sql, before it.
-- ?1 published from, ?2 until, ?3 at most so many, ?4 wall clock, ?5 who.
INSERT INTO semel_audit (at_us, id, key, verb, reason, who, state_before, state_after)
SELECT ?4, CAST(event_id AS BLOB), key, 'outbox republish', NULL, ?5, 'PUBLISHED', 'PENDING'
FROM semel_outbox WHERE status = 'PUBLISHED' AND published_at >= ?1 AND published_at < ?2
ORDER BY published_at LIMIT ?3

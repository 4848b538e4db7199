-- ?1 id, ?2 wall clock, ?3 who, ?4 why.
INSERT INTO semel_audit (at_us, id, key, verb, reason, who, state_before, state_after)
SELECT ?2, CAST(event_id AS BLOB), key, 'outbox discard', ?4, ?3, 'DEAD', 'discarded'
FROM semel_outbox WHERE id = ?1 AND status = 'DEAD'

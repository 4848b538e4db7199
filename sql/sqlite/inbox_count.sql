-- Count a try before it begins (rule D3).  ?1 consumer, ?2 source, ?3 id, ?4 now.
INSERT INTO semel_inbox_attempt (consumer, source, event_id, attempts, last_us)
VALUES (?1, ?2, ?3, 1, ?4)
ON CONFLICT (consumer, source, event_id) DO UPDATE SET attempts = attempts + 1, last_us = ?4
RETURNING attempts

-- ?1 state, ?2 id of the last row seen, ?3 at most so many.
SELECT id, attempts, created_at, next_attempt_at, published_at, topic, key, last_error, event_id
FROM semel_outbox WHERE status = ?1 AND id > ?2 ORDER BY id LIMIT ?3

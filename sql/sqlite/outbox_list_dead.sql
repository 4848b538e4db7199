-- As outbox_list.sql for state DEAD, which has an index.  ?1 id of the last row seen, ?2 at most so many.
SELECT id, attempts, created_at, next_attempt_at, published_at, topic, key, last_error, event_id
FROM semel_outbox WHERE status = 'DEAD' AND id > ?1 ORDER BY id LIMIT ?2

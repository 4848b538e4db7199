-- ?1 id (0: all), ?2 at most so many.
UPDATE semel_outbox SET status = 'PENDING', attempts = 0, next_attempt_at = NULL
WHERE id IN (SELECT id FROM semel_outbox WHERE status = 'DEAD' AND (?1 = 0 OR id = ?1)
             ORDER BY id LIMIT ?2)

-- ?1 published from, ?2 until (not with it), on the file's calendar, ?3 at most so many.
UPDATE semel_outbox
SET status = 'PENDING', attempts = 0, next_attempt_at = NULL, published_at = NULL
WHERE id IN (SELECT id FROM semel_outbox
             WHERE status = 'PUBLISHED' AND published_at >= ?1 AND published_at < ?2
             ORDER BY published_at LIMIT ?3)

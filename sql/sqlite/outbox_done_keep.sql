-- ?1 id, ?2 attempts as read, ?3 now on the file's calendar.
UPDATE semel_outbox SET status = 'PUBLISHED', published_at = ?3, next_attempt_at = NULL
WHERE id = ?1 AND status = 'PENDING' AND attempts = ?2

-- ?1 id, ?2 attempts as read, ?3 why.
UPDATE semel_outbox
SET status = 'DEAD', attempts = attempts + 1, next_attempt_at = NULL, last_error = ?3
WHERE id = ?1 AND status = 'PENDING' AND attempts = ?2

-- ?1 id, ?2 attempts as read, ?3 when, on the file's calendar, ?4 why.
UPDATE semel_outbox SET attempts = attempts + 1, next_attempt_at = ?3, last_error = ?4
WHERE id = ?1 AND status = 'PENDING' AND attempts = ?2

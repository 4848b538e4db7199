-- ?1 id, ?2 attempts as read.
DELETE FROM semel_outbox WHERE id = ?1 AND status = 'PENDING' AND attempts = ?2

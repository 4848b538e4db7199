-- ?1 id.
DELETE FROM semel_outbox WHERE id = ?1 AND status = 'DEAD'

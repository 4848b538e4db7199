-- ?1 id.
SELECT status, attempts FROM semel_outbox WHERE id = ?1

-- ?1 id.
SELECT status, attempts, event_id FROM semel_outbox WHERE id = ?1

-- When the first waiting row was made, on the wall clock.
SELECT created_at FROM semel_outbox WHERE status = 'PENDING' ORDER BY id LIMIT 1

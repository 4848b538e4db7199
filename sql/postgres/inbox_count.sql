-- Count a try before it begins (rule D3).  $1 consumer, $2 source, $3 id.
INSERT INTO semel.inbox_attempt AS a (consumer, source, event_id, attempts)
VALUES ($1, $2, $3, 1)
ON CONFLICT (consumer, source, event_id)
DO UPDATE SET attempts = a.attempts + 1, last_at = pg_catalog.clock_timestamp()
RETURNING attempts

-- Count a try before it begins (rule D3), as the how-manieth it is, so that this can be said again until it
-- is answered (rule D2).  What another counted meanwhile is not lowered.
-- $1 consumer, $2 source, $3 id, $4 the try's number.
INSERT INTO semel.inbox_attempt AS a (consumer, source, event_id, attempts)
VALUES ($1, $2, $3, $4)
ON CONFLICT (consumer, source, event_id)
DO UPDATE SET attempts = GREATEST(a.attempts, $4), last_at = pg_catalog.clock_timestamp()
RETURNING attempts

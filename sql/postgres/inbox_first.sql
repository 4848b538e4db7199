-- In the caller's transaction: is this event new?  $1 consumer, $2 source, $3 id, $4 hash or NULL.
INSERT INTO semel.processed_event (consumer, source, event_id, payload_hash)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

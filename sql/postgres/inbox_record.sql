-- The ids of a batch, in the order of their bytes: those that are new come back, in the same order.
-- $1 consumer, $2 source, $3 ids, $4 hashes of the payloads.
INSERT INTO semel.processed_event (consumer, source, event_id, payload_hash)
SELECT $1, $2, u.id, u.hash
FROM ROWS FROM (pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::bytea[])) AS u(id, hash)
ON CONFLICT DO NOTHING
RETURNING event_id

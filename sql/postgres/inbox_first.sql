-- In the caller's transaction: is this event new?  $1 consumer, $2 source, $3 id, as bytes of UTF-8, whatever the
-- caller's connection speaks, $4 hash or NULL.
INSERT INTO semel.processed_event (consumer, source, event_id, payload_hash)
VALUES (pg_catalog.convert_from($1::bytea, 'UTF8'), pg_catalog.convert_from($2::bytea, 'UTF8'),
        pg_catalog.convert_from($3::bytea, 'UTF8'), $4)
ON CONFLICT DO NOTHING

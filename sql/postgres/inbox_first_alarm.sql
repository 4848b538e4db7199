-- It is not; was it the same payload?  $1 consumer, $2 source, $3 id, as in inbox_first.sql, $4 hash.
INSERT INTO semel.inbox_alarm
  (consumer, source, event_id, payload_hash, first_hash, topic, kafka_partition, kafka_offset)
SELECT p.consumer, p.source, p.event_id, $4, p.payload_hash, p.source, -1, -1
FROM semel.processed_event p
WHERE p.consumer = pg_catalog.convert_from($1::bytea, 'UTF8')
  AND p.source = pg_catalog.convert_from($2::bytea, 'UTF8')
  AND p.event_id = pg_catalog.convert_from($3::bytea, 'UTF8') AND p.payload_hash <> $4
ON CONFLICT DO NOTHING

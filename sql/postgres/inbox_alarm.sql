-- Ids of a batch that are recorded with another payload (rule D1).
-- $1 consumer, $2 source, $3 ids, $4 hashes, $5 topic, $6 partition, $7 offsets.
INSERT INTO semel.inbox_alarm
  (consumer, source, event_id, payload_hash, first_hash, topic, kafka_partition, kafka_offset)
SELECT $1, $2, u.id, u.hash, p.payload_hash, $5, $6, u.kafka_offset
FROM ROWS FROM (pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::bytea[]),
                pg_catalog.unnest($7::bigint[])) AS u(id, hash, kafka_offset)
JOIN semel.processed_event p ON p.consumer = $1 AND p.source = $2 AND p.event_id = u.id
WHERE p.payload_hash <> u.hash
ON CONFLICT DO NOTHING
RETURNING event_id

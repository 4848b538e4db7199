-- A dead letter.  $1 consumer, $2 source, $3 id or NULL, $4 topic, $5 partition, $6 offset, $7 key,
-- $8 payload, $9 headers, $10 hash, $11 attempts, $12 reason.
INSERT INTO semel.dead_letter (consumer, source, event_id, topic, kafka_partition, kafka_offset, key,
  payload, headers, payload_hash, attempts, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT DO NOTHING
RETURNING id

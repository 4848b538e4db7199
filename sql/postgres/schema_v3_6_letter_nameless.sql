-- An event without an id is kept once, however often it is delivered.
CREATE UNIQUE INDEX dead_letter_nameless
ON semel.dead_letter (consumer, topic, kafka_partition, kafka_offset, payload_hash)
WHERE event_id IS NULL

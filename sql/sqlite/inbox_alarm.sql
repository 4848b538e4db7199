-- It is not; was it the same payload?  ?1 consumer, ?2 source, ?3 id, ?4 hash, ?5 now, ?6 topic,
-- ?7 partition, ?8 offset.
INSERT INTO semel_inbox_alarm
  (consumer, source, event_id, payload_hash, first_hash, topic, kafka_partition, kafka_offset,
   seen_us)
SELECT consumer, source, event_id, ?4, payload_hash, ?6, ?7, ?8, ?5
FROM semel_processed_event
WHERE consumer = ?1 AND source = ?2 AND event_id = ?3 AND payload_hash <> ?4
ON CONFLICT DO NOTHING

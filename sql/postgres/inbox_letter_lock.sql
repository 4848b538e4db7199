-- The letter that was taken, for as long as its transaction lasts.  $1 id.
SELECT id, state, consumer, source, event_id, topic, key, payload, headers, reason,
       kafka_partition, attempts, kafka_offset, dead_at
FROM semel.dead_letter
WHERE id = $1 AND state IN (0, 1)
FOR UPDATE SKIP LOCKED

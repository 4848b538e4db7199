-- $1 consumer ('' all), $2 state, $3 after this id, $4 how many.
SELECT id, state, consumer, source, event_id, topic, key, payload, headers, reason,
       kafka_partition, attempts, kafka_offset, dead_at
FROM semel.dead_letter
WHERE ($1 = '' OR consumer = $1) AND state = $2 AND id > $3
ORDER BY id
LIMIT $4

-- The letter that is, or was, taken.  ?1 id, ?2 consumer ('' any), ?3 0: also one that is DEAD; 1: only one
-- in RETRY.
SELECT id, state, consumer, source, event_id, topic, key, payload, headers, reason,
       kafka_partition, attempts, kafka_offset, dead_us
FROM semel_dead_letter
WHERE id = ?1 AND state IN (1, ?3) AND (?2 = '' OR consumer = ?2)

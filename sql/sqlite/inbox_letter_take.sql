-- A letter that is to be applied now.  ?1 consumer, ?2 its id (0: the next in RETRY).
SELECT id, state, consumer, source, event_id, topic, key, payload, headers, reason,
       kafka_partition, attempts, kafka_offset, dead_us
FROM semel_dead_letter
WHERE CASE WHEN ?2 = 0 THEN consumer = ?1 AND state = 1
           ELSE id = ?2 AND state IN (0, 1) AND (?1 = '' OR consumer = ?1) END
ORDER BY id
LIMIT 1

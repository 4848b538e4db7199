-- A letter is going to be tried: it is DEAD from now on, and the try is counted (rule D3).  It comes back
-- as it was.  $1 consumer ('' any), $2 id, $3 0: also one that is DEAD; 1: only one in RETRY; $4 the reason
-- that it has when nobody ever says how the try ended.
WITH l AS (
  SELECT id, state, consumer, source, event_id, topic, key, payload, headers, reason,
         kafka_partition, attempts, kafka_offset, dead_at
  FROM semel.dead_letter
  WHERE id = $2 AND state IN (1, $3) AND ($1 = '' OR consumer = $1)
  FOR UPDATE SKIP LOCKED
)
UPDATE semel.dead_letter d SET state = 0, attempts = d.attempts + 1, reason = $4
FROM l
WHERE d.id = l.id
RETURNING l.id, l.state, l.consumer, l.source, l.event_id, l.topic, l.key, l.payload, l.headers, l.reason,
  l.kafka_partition, l.attempts, l.kafka_offset, l.dead_at

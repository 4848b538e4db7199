-- Rows as operators see them.  A branch a state, so that each finds its partial index.
-- $1 state, $2 behind this id, $3 at most so many.
(SELECT o.id, o.status, o.attempts, o.created_at, o.next_attempt_at, o.published_at, o.topic, o.key,
   o.last_error, o.event_id
 FROM semel.outbox o
 WHERE $1::text = 'PENDING' AND o.status = 'PENDING' AND o.id > $2::bigint
 ORDER BY o.id LIMIT $3::bigint)
UNION ALL
(SELECT o.id, o.status, o.attempts, o.created_at, o.next_attempt_at, o.published_at, o.topic, o.key,
   o.last_error, o.event_id
 FROM semel.outbox o
 WHERE $1::text = 'PUBLISHING' AND o.status = 'PUBLISHING' AND o.id > $2::bigint
 ORDER BY o.id LIMIT $3::bigint)
UNION ALL
(SELECT o.id, o.status, o.attempts, o.created_at, o.next_attempt_at, o.published_at, o.topic, o.key,
   o.last_error, o.event_id
 FROM semel.outbox o
 WHERE $1::text = 'PUBLISHED' AND o.status = 'PUBLISHED' AND o.id > $2::bigint
 ORDER BY o.id LIMIT $3::bigint)
UNION ALL
(SELECT o.id, o.status, o.attempts, o.created_at, o.next_attempt_at, o.published_at, o.topic, o.key,
   o.last_error, o.event_id
 FROM semel.outbox o
 WHERE $1::text = 'DEAD' AND o.status = 'DEAD' AND o.id > $2::bigint
 ORDER BY o.id LIMIT $3::bigint)

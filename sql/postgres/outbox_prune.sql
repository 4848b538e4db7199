-- Kept rows go when they are old (terminal rows only, O24).  $1 older than so many microseconds, $2 at
-- most so many.
WITH m AS (
  DELETE FROM semel.outbox o
  WHERE o.status = 'PUBLISHED'
    AND o.published_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
    AND o.id IN (SELECT o.id FROM semel.outbox o
                 WHERE o.status = 'PUBLISHED'
                   AND o.published_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
                 ORDER BY o.published_at LIMIT $2::bigint
                 FOR UPDATE SKIP LOCKED)
  RETURNING 1)
SELECT count(*) FROM m

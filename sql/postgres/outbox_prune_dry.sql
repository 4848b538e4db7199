-- How many rows a prune would delete.  $1 older than so many microseconds.
SELECT count(*) FROM semel.outbox o
WHERE o.status = 'PUBLISHED'
  AND o.published_at < clock_timestamp() - $1::bigint * interval '1 microsecond'

-- How long ago the first row of [since, until) was published; NULL: there is none.  $1 since, $2 until.
SELECT (extract(epoch FROM clock_timestamp() - min(o.published_at)) * 1000000)::bigint
FROM semel.outbox o
WHERE o.status = 'PUBLISHED' AND o.published_at >= $1::timestamptz AND o.published_at < $2::timestamptz

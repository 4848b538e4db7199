-- How long ago the first row of [since, until) was published; NULL: there is none.  By the order of the
-- index, whatever the table's statistics say (O44).  $1 since, $2 until.
SELECT (SELECT (extract(epoch FROM clock_timestamp() - o.published_at) * 1000000)::bigint
        FROM semel.outbox o
        WHERE o.status = 'PUBLISHED' AND o.published_at >= $1::timestamptz
          AND o.published_at < $2::timestamptz
        ORDER BY o.published_at LIMIT 1)

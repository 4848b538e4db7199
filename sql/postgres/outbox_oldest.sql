-- How long ago the first row of [since, until) that consumers may have forgotten was made or published; NULL:
-- there is none.  published_at is of the last time, and consumers count from the first (rule C10), which came
-- after the row was made.  By the order of the index, whatever the table's statistics say (O44).
-- $1 since, $2 until, $3 microseconds for which they remember.
SELECT (SELECT (extract(epoch FROM clock_timestamp() - least(o.created_at, o.published_at)) * 1000000)::bigint
        FROM semel.outbox o
        WHERE o.status = 'PUBLISHED' AND o.published_at >= $1::timestamptz
          AND o.published_at < $2::timestamptz
          AND clock_timestamp() - least(o.created_at, o.published_at) > $3::bigint * interval '1 microsecond'
        ORDER BY o.published_at LIMIT 1)

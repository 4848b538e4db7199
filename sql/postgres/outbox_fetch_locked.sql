-- The same rows, locked until the transaction ends (mode single).  Never SKIP LOCKED (rule C6): a
-- row that somebody holds is waited for, since it is the first of its key.
-- semel.outbox and the columns of o stand for the mapped table's (src/store/postgres/pg_mapping.c).
-- A key behind which a row waits or is being published stays out as a whole (rules C4, C5); rows
-- without a key never wait.  NOT IN is a hash made once: 4,096 keys cost no more than one.
-- A slot is asked for as a range, and held is a column: only the index that is meant can serve them,
-- whatever the table's statistics say (O44).
-- $1 slots, $2 most rows of each, $3 blocked keys, $4 bytes: stop at about so many.
SELECT r.slot, r.id, r.attempts, r.created_at, r.event_id, r.topic, r.key, r.payload, r.headers,
  r.partition, r.traceparent
FROM (SELECT r.*, sum(r.bytes) OVER (ROWS UNBOUNDED PRECEDING) - r.bytes AS bytes_before
      FROM unnest($1::smallint[], $2::integer[]) AS q (slot, quota)
      CROSS JOIN LATERAL (
        SELECT o.slot AS slot, o.id AS id, o.attempts AS attempts, o.created_at AS created_at,
          o.event_id AS event_id, o.topic AS topic, o.key AS key, o.payload AS payload,
          o.headers AS headers, o.partition AS partition, o.traceparent AS traceparent,
          coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.key), 0)
            + coalesce(pg_column_size(o.headers), 0) AS bytes
        FROM semel.outbox o
        WHERE o.slot >= q.slot AND o.slot <= q.slot AND o.status = 'PENDING'
          AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock_timestamp())
          AND (o.key IS NULL OR o.key NOT IN (
            SELECT unnest($3::text[])
            UNION ALL
            SELECT o.key FROM semel.outbox o
            WHERE o.held AND o.slot = ANY ($1) AND o.key IS NOT NULL
              AND (o.status = 'PUBLISHING' OR o.next_attempt_at > clock_timestamp())))
        ORDER BY o.slot, o.id LIMIT q.quota
        FOR UPDATE OF o) r) r
WHERE r.bytes_before < $4::bigint

-- Rows that may go now become PUBLISHING, under the epochs (mode two-phase).
-- The rows are updated where they were seen: a join by id was planned while the table was empty, and
-- walked all pending rows for each one that was picked; || keeps the partial index out of it.
-- $1 slots, $2 most rows of each, $3 blocked keys, $4 bytes: stop at about so many. $5 most rows of all
-- together. $6 epochs of the slots.
WITH s AS MATERIALIZED (
  SELECT r.slot FROM semel.relay_slot r
  JOIN unnest($1::smallint[], $6::bigint[]) AS e (slot, epoch)
    ON r.slot = e.slot AND r.epoch = e.epoch
  WHERE r.outbox = 'semel.outbox'
  ORDER BY r.slot FOR SHARE OF r),
picked AS MATERIALIZED (
  SELECT r.place
  FROM (SELECT r.*, sum(r.bytes) OVER (ROWS UNBOUNDED PRECEDING) - r.bytes AS bytes_before
      FROM unnest($1::smallint[], $2::integer[]) AS q (slot, quota)
      CROSS JOIN LATERAL (
        SELECT o.ctid AS place, coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.key), 0)
            + coalesce(pg_column_size(o.headers), 0) AS bytes
@outbox_ready.part
      ) r
      WHERE q.slot = ANY (ARRAY(SELECT s.slot FROM s))) r
  WHERE r.bytes_before < $4::bigint
  LIMIT $5::bigint)
UPDATE semel.outbox o
SET status = 'PUBLISHING', locked_at = clock_timestamp()
WHERE o.ctid = ANY (ARRAY(SELECT p.place FROM picked p)) AND o.status || '' = 'PENDING'
RETURNING o.slot, o.id, o.attempts, o.created_at, o.event_id, o.topic, o.key, o.payload, o.headers,
  o.partition, o.traceparent, o.ctid, o.published_at::timestamptz

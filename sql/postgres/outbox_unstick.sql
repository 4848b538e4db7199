-- Rows that were left PUBLISHING go back, under the epochs (mode two-phase).
-- $1 slots, $2 epochs; $3 those that have been so for so many microseconds.
WITH s AS MATERIALIZED (
@outbox_fenced.part
  ORDER BY r.slot FOR SHARE OF r),
m AS (
  UPDATE semel.outbox o
  SET status = 'PENDING', locked_at = NULL
  WHERE o.status = 'PUBLISHING'
    AND o.slot = ANY (ARRAY(SELECT s.slot FROM s))
    AND (o.locked_at IS NULL OR o.locked_at < clock_timestamp() - $3::bigint * interval '1 microsecond')
  RETURNING 1)
SELECT (SELECT coalesce(bit_or(1 << s.slot::integer), 0) FROM s), (SELECT count(*) FROM m)

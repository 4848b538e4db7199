-- Exactly-once recovery (rule C8): exactly the listed rows, by id and event id, whatever their status.
-- Not a row that was published after it was read: it is marked, and an operator put it back (outbox_republish.sql).
-- (Ids as ranges: see outbox_mark_delete_tried.sql.)
-- $1 slots, $2 epochs; $3 ids, $4 event ids, $5 keep them as PUBLISHED, $6 when they were published before.
WITH s AS MATERIALIZED (
@outbox_fenced.part
  ORDER BY r.slot FOR SHARE OF r),
kept AS (
  UPDATE semel.outbox o
  SET status = 'PUBLISHED', published_at = clock_timestamp(), locked_at = NULL,
      next_attempt_at = NULL, last_error = NULL
  FROM unnest($3::bigint[], $4::uuid[], $6::timestamptz[]) AS w (id, event_id, published_at)
  WHERE $5::boolean AND o.id >= w.id AND o.id <= w.id AND o.event_id >= w.event_id
    AND o.event_id <= w.event_id AND o.status <> 'PUBLISHED'
    AND o.published_at::timestamptz IS NOT DISTINCT FROM w.published_at
    AND o.slot = ANY (ARRAY(SELECT s.slot FROM s))
  RETURNING 1),
gone AS (
  DELETE FROM semel.outbox o
  USING unnest($3::bigint[], $4::uuid[], $6::timestamptz[]) AS w (id, event_id, published_at)
  WHERE NOT $5::boolean AND o.id >= w.id AND o.id <= w.id AND o.event_id >= w.event_id
    AND o.event_id <= w.event_id
    AND o.published_at::timestamptz IS NOT DISTINCT FROM w.published_at
    AND o.slot = ANY (ARRAY(SELECT s.slot FROM s))
  RETURNING 1)
SELECT (SELECT coalesce(bit_or(1 << s.slot::integer), 0) FROM s),
  (SELECT count(*) FROM kept) + (SELECT count(*) FROM gone)

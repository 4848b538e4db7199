-- Published rows go.
-- The slots' rows are locked first, with their epochs, so that no takeover is in between; a row must be as
-- it was read (rule C1: EXISTS alone is write skew).  Gives the slots that are ours, as bits, and how
-- many rows were marked.
-- Nearly all rows go at the first attempt: they are found by one list of ids.  Ids that come with their
-- attempts are asked for as ranges: with = the planner may walk the whole primary key first, and does
-- while it takes the table for empty (O44).
-- $1 slots, $2 epochs; $3 ids that were not tried yet; $4 ids, $5 attempts as read; $6 status as read.
WITH s AS MATERIALIZED (
  SELECT r.slot FROM semel.relay_slot r
  JOIN unnest($1::smallint[], $2::bigint[]) AS e (slot, epoch)
    ON r.slot = e.slot AND r.epoch = e.epoch
  WHERE r.outbox = 'semel.outbox'
  ORDER BY r.slot FOR SHARE OF r),
first AS (
  DELETE FROM semel.outbox o
  WHERE o.id = ANY ($3::bigint[]) AND o.attempts = 0 AND o.status = $6::text
    AND o.slot = ANY (ARRAY(SELECT s.slot FROM s))
  RETURNING 1),
tried AS (
  DELETE FROM semel.outbox o
  USING unnest($4::bigint[], $5::integer[]) AS w (id, attempts)
  WHERE o.id >= w.id AND o.id <= w.id AND o.attempts = w.attempts AND o.status = $6::text
    AND o.slot = ANY (ARRAY(SELECT s.slot FROM s))
  RETURNING 1)
SELECT (SELECT coalesce(bit_or(1 << s.slot::integer), 0) FROM s),
  (SELECT count(*) FROM first) + (SELECT count(*) FROM tried)

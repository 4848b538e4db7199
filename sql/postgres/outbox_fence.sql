-- In front of the marks, in their transaction: the slots' rows are locked with the epochs that were told, so
-- that no takeover is in between (rule C1: EXISTS alone is write skew).  Gives the slots that are ours, as
-- bits.
-- $1 slots, $2 epochs.
WITH s AS MATERIALIZED (
  SELECT r.slot FROM semel.relay_slot r
  JOIN unnest($1::smallint[], $2::bigint[]) AS e (slot, epoch)
    ON r.slot = e.slot AND r.epoch = e.epoch
  WHERE r.outbox = 'semel.outbox'
  ORDER BY r.slot FOR SHARE OF r)
SELECT coalesce(bit_or(1 << s.slot::integer), 0) FROM s

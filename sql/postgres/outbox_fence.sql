-- In front of the marks, in their transaction: the slots' rows are locked with the epochs that were told, so
-- that no takeover is in between (rule C1: EXISTS alone is write skew).  Gives the slots that are ours, as
-- bits.
-- $1 slots, $2 epochs.
WITH s AS MATERIALIZED (
@outbox_fenced.part
  ORDER BY r.slot FOR SHARE OF r)
SELECT coalesce(bit_or(1 << s.slot::integer), 0) FROM s

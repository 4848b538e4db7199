-- Published rows go that were tried before, or are not where they were seen, behind outbox_fence.sql; a row must
-- be as it was read.
-- Ids that come with their attempts are asked for as ranges: with = the planner may walk the whole primary
-- key first, and does while it takes the table for empty (O44).
-- $1 slots, $2 epochs; $3 ids, $4 attempts as read; $5 status as read.
DELETE FROM semel.outbox o
USING unnest($3::bigint[], $4::integer[]) AS w (id, attempts)
WHERE o.id >= w.id AND o.id <= w.id AND o.attempts = w.attempts AND o.status = $5::text
  AND o.slot = ANY (ARRAY(
@outbox_fenced.part
  ))

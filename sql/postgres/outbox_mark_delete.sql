-- Published rows go, behind outbox_fence.sql; a row must be as it was read.  Nearly all rows go at the first
-- attempt: these are found by one list of ids.  The command's tag says how many they were: RETURNING them,
-- to be counted with those of outbox_mark_delete_tried.sql, costs up to 1 us a row.
-- $1 slots, $2 epochs; $3 ids that were not tried yet; $4 status as read.
DELETE FROM semel.outbox o
WHERE o.id = ANY ($3::bigint[]) AND o.attempts = 0 AND o.status = $4::text
  AND o.slot = ANY (ARRAY(
@outbox_fenced.part
  ))

-- Published rows go, behind outbox_fence.sql; a row must be as it was read.  Nearly all rows go at the first
-- attempt: these are found where they were seen, which costs half of looking each up by its id.  The row there
-- must be one of them: a place is used again.  A row that is elsewhere by now is left to
-- outbox_mark_delete_tried.sql.
-- IS TRUE: as a join it would be planned in many ways.  The command's tag says how many they were: RETURNING
-- them, to be counted with those of outbox_mark_delete_tried.sql, costs up to 1 us a row.
-- $1 slots, $2 epochs; $3 ids that were not tried yet; $4 status as read; $5 places.
DELETE FROM semel.outbox o
WHERE o.ctid = ANY ($5::tid[]) AND (o.id IN (SELECT unnest($3::bigint[]))) IS TRUE
  AND o.attempts = 0 AND o.status = $4::text
  AND o.slot = ANY (ARRAY(
@outbox_fenced.part
  ))

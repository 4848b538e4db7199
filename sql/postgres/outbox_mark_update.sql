-- Rows are PUBLISHED (kept), tried again later, DEAD, or go back untried, behind outbox_fence.sql; a row must
-- be as it was read.
-- (Ids as ranges: see outbox_mark_delete_tried.sql.)
-- $1 slots, $2 epochs; $3 ids, $4 their slots, $5 attempts as read, $6 status as read,
-- $7 what: 0 PUBLISHED, 1 again, 2 DEAD, 3 untried; $8 again after so many microseconds, $9 reasons.
UPDATE semel.outbox o
SET status = CASE w.what WHEN 0 THEN 'PUBLISHED' WHEN 2 THEN 'DEAD' ELSE 'PENDING' END,
    attempts = o.attempts + CASE WHEN w.what IN (1, 2) THEN 1 ELSE 0 END,
    next_attempt_at = CASE WHEN w.what = 1
      THEN clock_timestamp() + w.after_us * interval '1 microsecond' END,
    last_error = CASE w.what WHEN 0 THEN NULL WHEN 3 THEN o.last_error ELSE w.reason END,
    locked_at = NULL,
    published_at = CASE w.what WHEN 0 THEN clock_timestamp() ELSE o.published_at END
FROM unnest($3::bigint[], $4::smallint[], $5::integer[], $7::smallint[], $8::bigint[], $9::text[])
  AS w (id, slot, attempts, what, after_us, reason)
WHERE o.id >= w.id AND o.id <= w.id AND o.slot = w.slot AND o.attempts = w.attempts AND o.status = $6::text
  AND w.slot = ANY (ARRAY(
@outbox_fenced.part
  ))

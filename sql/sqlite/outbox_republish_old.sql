-- What consumers may have forgotten: published_at is of the last time, and they count from the first, which came
-- after the row was made.  ?1 published from, ?2 until, ?3 the oldest that is remembered, on the file's calendar,
-- ?4 on the wall clock.
SELECT count(*) FROM semel_outbox
WHERE status = 'PUBLISHED' AND published_at >= ?1 AND published_at < ?2
  AND (published_at < ?3 OR created_at < ?4)

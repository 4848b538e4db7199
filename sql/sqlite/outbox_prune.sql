-- ?1 published at or before this, on the file's calendar, ?2 at most so many.
DELETE FROM semel_outbox WHERE id IN
  (SELECT id FROM semel_outbox WHERE status = 'PUBLISHED' AND published_at <= ?1
   ORDER BY published_at LIMIT ?2)

-- ?1 published at or before this, on the file's calendar.
SELECT count(*) FROM semel_outbox WHERE status = 'PUBLISHED' AND published_at <= ?1

-- What consumers may have forgotten.  ?1 published from, ?2 until, ?3 the oldest that is remembered.
SELECT count(*), min(published_at) FROM semel_outbox
WHERE status = 'PUBLISHED' AND published_at >= ?1 AND published_at < ?2 AND published_at < ?3

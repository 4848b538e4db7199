-- Forget the oldest events of a consumer.  ?1 consumer, ?2 older than this, ?3 how many.
DELETE FROM semel_processed_event
WHERE (consumer, source, event_id) IN
  (SELECT consumer, source, event_id FROM semel_processed_event INDEXED BY semel_processed_event_at
   WHERE consumer = ?1 AND processed_us < ?2 ORDER BY processed_us LIMIT ?3)

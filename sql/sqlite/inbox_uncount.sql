-- The event is done, its tries are forgotten.  ?1 consumer, ?2 source, ?3 id.
DELETE FROM semel_inbox_attempt WHERE consumer = ?1 AND source = ?2 AND event_id = ?3

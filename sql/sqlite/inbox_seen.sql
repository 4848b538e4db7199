-- Is this event recorded?  ?1 consumer, ?2 source, ?3 id.
SELECT 1 FROM semel_processed_event WHERE consumer = ?1 AND source = ?2 AND event_id = ?3

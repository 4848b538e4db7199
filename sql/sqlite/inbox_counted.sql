-- How many tries of an event were counted?  ?1 consumer, ?2 source, ?3 id.
SELECT attempts FROM semel_inbox_attempt WHERE consumer = ?1 AND source = ?2 AND event_id = ?3

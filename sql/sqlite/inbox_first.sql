-- Is this event new?  ?1 consumer, ?2 source, ?3 id, ?4 hash or NULL, ?5 now.
INSERT INTO semel_processed_event (consumer, source, event_id, payload_hash, processed_us)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING

-- Count a try before it begins (rule D3), as the how-manieth it is: this can be said again (rule D2), and
-- what another counted meanwhile is not lowered.  ?1 consumer, ?2 source, ?3 id, ?4 the try's number, ?5 now.
INSERT INTO semel_inbox_attempt (consumer, source, event_id, attempts, last_us)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (consumer, source, event_id) DO UPDATE SET attempts = max(attempts, ?4), last_us = ?5
RETURNING attempts

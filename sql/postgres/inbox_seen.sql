-- Which of these are recorded?  $1 consumer, $2 source, $3 ids.
SELECT p.event_id FROM semel.processed_event p
WHERE p.consumer = $1 AND p.source = $2 AND p.event_id = ANY ($3::text[])

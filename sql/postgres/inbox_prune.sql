-- Forget the oldest events of a consumer, and tries that were counted and never made: whoever counted
-- them ended, and another had applied the event.  $1 consumer, $2 older than so many us, $3 how many.
WITH tried AS (
  DELETE FROM semel.inbox_attempt
  WHERE consumer = $1
    AND last_at < pg_catalog.clock_timestamp() - $2::bigint * interval '1 microsecond'
)
DELETE FROM semel.processed_event p
USING (SELECT consumer, source, event_id FROM semel.processed_event
       WHERE consumer = $1
         AND processed_at < pg_catalog.clock_timestamp() - $2::bigint * interval '1 microsecond'
       ORDER BY processed_at
       LIMIT $3
       FOR UPDATE SKIP LOCKED) old
WHERE p.consumer = old.consumer AND p.source = old.source AND p.event_id = old.event_id

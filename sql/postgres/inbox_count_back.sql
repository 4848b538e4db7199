-- What ended a try was nobody's fault: it was none (rule D2).  Another's counts stay.
-- $1 consumer, $2 source, $3 id, $4 the try's number.
UPDATE semel.inbox_attempt SET attempts = attempts - 1
WHERE consumer = $1 AND source = $2 AND event_id = $3 AND attempts = $4

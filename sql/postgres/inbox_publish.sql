-- The letter's event to the dead-letter topic, through the outbox.
-- $1 topic, $2 key, $3 payload, $4 headers as JSON.
SELECT semel.publish($1, $2, $3, $4::text::jsonb)

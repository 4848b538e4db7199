-- An event in the caller's transaction.  $1 event id or NULL, $2 topic, $3 key, $4 payload, $5 headers,
-- $6 partition, $7 traceparent.
INSERT INTO semel.outbox (event_id, topic, key, payload, headers, partition, traceparent)
VALUES (coalesce($1::uuid, gen_random_uuid()), $2::text, $3::text, $4::bytea, $5::text::jsonb,
        $6::integer, $7::text)
RETURNING event_id

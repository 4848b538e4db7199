-- An event in the caller's transaction.  Text comes as bytes of UTF-8: what the caller's connection speaks says
-- nothing about it.  $1 event id or NULL, $2 topic, $3 key, $4 payload, $5 headers, $6 partition, $7 traceparent.
INSERT INTO semel.outbox (event_id, topic, key, payload, headers, partition, traceparent)
VALUES (coalesce($1::uuid, pg_catalog.gen_random_uuid()), pg_catalog.convert_from($2::bytea, 'UTF8'),
        pg_catalog.convert_from($3::bytea, 'UTF8'), $4::bytea,
        pg_catalog.convert_from($5::bytea, 'UTF8')::jsonb, $6::integer,
        pg_catalog.convert_from($7::bytea, 'UTF8'))
RETURNING event_id

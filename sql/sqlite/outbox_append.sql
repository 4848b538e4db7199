-- ?1 event id, ?2 topic, ?3 key, ?4 payload, ?5 headers, ?6 traceparent, ?7 partition.
INSERT INTO semel_outbox (event_id, topic, key, payload, headers, traceparent, "partition")
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- Leave an event in the outbox, in the caller's transaction; gives its id.  payload NULL is a
-- tombstone.  headers: {"name": "value"}, or [["name", "value"], ...] where order and repeats count;
-- a value is a string, null, or {"base64": "..."} for bytes.
CREATE FUNCTION semel.publish(topic text, key text, payload bytea, headers jsonb DEFAULT NULL)
RETURNS uuid LANGUAGE sql VOLATILE AS $$
  INSERT INTO semel.outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4)
  RETURNING event_id
$$

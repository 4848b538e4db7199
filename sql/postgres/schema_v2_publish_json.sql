-- The same for a payload that is JSON: its text in UTF-8.
CREATE FUNCTION semel.publish_json(topic text, key text, payload jsonb,
                                   headers jsonb DEFAULT NULL)
RETURNS uuid LANGUAGE sql VOLATILE AS $$
  INSERT INTO semel.outbox (topic, key, payload, headers)
  VALUES ($1, $2, convert_to($3::text, 'UTF8'), $4)
  RETURNING event_id
$$

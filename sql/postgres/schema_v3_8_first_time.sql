-- For handlers in SQL: true for the first call with these names in a transaction that commits.
-- A call while another transaction has done the same waits for its end.
CREATE FUNCTION semel.first_time(consumer text, source text, event_id text) RETURNS boolean
LANGUAGE sql VOLATILE STRICT
AS $$
  WITH first AS (
    INSERT INTO semel.processed_event (consumer, source, event_id) VALUES ($1, $2, $3)
    ON CONFLICT DO NOTHING
    RETURNING 1)
  SELECT EXISTS (SELECT FROM first)
$$

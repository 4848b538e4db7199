-- Dead rows are PENDING again, and one audit row says so.  $1 id, 0: all; $2 at most so many; $3 who.
WITH picked AS MATERIALIZED (
  SELECT o.id AS id FROM semel.outbox o
  WHERE o.status = 'DEAD' AND ($1::bigint = 0 OR o.id = $1::bigint)
  ORDER BY o.id LIMIT $2::bigint FOR UPDATE OF o),
changed AS (
  UPDATE semel.outbox o
  SET status = 'PENDING', attempts = 0, next_attempt_at = NULL
  FROM picked p WHERE o.id = p.id
  RETURNING o.id AS id, o.event_id AS event_id),
noted AS (
  INSERT INTO semel.audit (verb, subject, row_id, event_id, row_count, who, reason)
  SELECT 'retry', 'semel.outbox', CASE count(*) WHEN 1 THEN min(c.id) END,
    CASE count(*) WHEN 1 THEN (array_agg(c.event_id))[1] END, count(*), $3::text, ''
  FROM changed c HAVING count(*) > 0)
SELECT count(*) FROM changed

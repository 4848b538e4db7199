-- Kept rows go back, and one audit row says so.  published_at stays: the marker of the transaction that they were in
-- must not finish them again (outbox_recover.sql).  $1 since, $2 until, $3 at most so many, $4 who.
WITH picked AS MATERIALIZED (
  SELECT o.id AS id FROM semel.outbox o
  WHERE o.status = 'PUBLISHED' AND o.published_at >= $1::timestamptz
    AND o.published_at < $2::timestamptz
  ORDER BY o.published_at LIMIT $3::bigint FOR UPDATE OF o),
changed AS (
  UPDATE semel.outbox o
  SET status = 'PENDING', attempts = 0, next_attempt_at = NULL
  FROM picked p WHERE o.id = p.id
  RETURNING o.id AS id),
noted AS (
  INSERT INTO semel.audit (verb, subject, row_count, who, reason)
  SELECT 'republish', 'semel.outbox', count(*), $4::text, ''
  FROM changed c HAVING count(*) > 0)
SELECT count(*) FROM changed

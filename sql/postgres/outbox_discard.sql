-- One dead row goes; an audit row stays.  $1 id, $2 who, $3 why.
WITH gone AS (
  DELETE FROM semel.outbox o WHERE o.id = $1::bigint AND o.status = 'DEAD'
  RETURNING o.id AS id, o.event_id AS event_id),
noted AS (
  INSERT INTO semel.audit (verb, subject, row_id, event_id, row_count, who, reason)
  SELECT 'discard', 'semel.outbox', g.id, g.event_id, 1, $2::text, $3::text FROM gone g)
SELECT (SELECT count(*) FROM gone), (SELECT o.status FROM semel.outbox o WHERE o.id = $1::bigint)

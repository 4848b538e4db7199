-- The purge pass's verdicts on rows that list_rows read: nobody is waited for, and everything that
-- the verdict looked at is asked again where it is carried out (rule A9).  Columns of the
-- arrays: $1 id, $2 token, $3 attempt, $4 state, $5 lease_until, $6 expire_at, $7 true to
-- delete, false for UNKNOWN.
WITH locked AS MATERIALIZED (
  SELECT u.*
  FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::smallint[], $5::timestamptz[],
              $6::timestamptz[], $7::boolean[])
       AS u(id, token, attempt, state, lease_until, expire_at, gone)
  JOIN semel.command c ON c.id >= u.id AND c.id <= u.id
  WHERE c.token = u.token AND c.attempt = u.attempt AND c.state = u.state
    AND c.lease_until = u.lease_until AND c.expire_at IS NOT DISTINCT FROM u.expire_at
  ORDER BY u.id
  FOR UPDATE OF c SKIP LOCKED),
deleted AS (
  DELETE FROM semel.command c USING locked k
  WHERE k.gone AND c.id >= k.id AND c.id <= k.id AND c.token = k.token AND c.attempt = k.attempt
    AND c.state = k.state AND c.state IN (0, 2) AND c.expire_at = k.expire_at
  RETURNING 1),
unknown AS (
  UPDATE semel.command c SET state = 3 FROM locked k
  WHERE NOT k.gone AND c.id >= k.id AND c.id <= k.id AND c.token = k.token AND c.attempt = k.attempt
    AND c.state = k.state AND c.state = 1 AND c.lease_until = k.lease_until
  RETURNING 1)
SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM unknown)

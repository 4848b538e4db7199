-- The reply of a claim that this very transaction holds.  No row (the command deleted it) is an
-- error, 22012, so that the RELEASE behind it in the pipeline is not carried out and the
-- savepoint is there to go back to.  $1 id, $2 token, $3 attempt, $4 status, $5 flags,
-- $6 headers, $7 body.
WITH done AS (
  UPDATE semel.command c
  SET state = 2, expire_at = pg_catalog.clock_timestamp()
                             + c.retention_us * interval '1 microsecond',
      status = $4, flags = $5, headers = $6, body = $7
  WHERE c.id = $1 AND c.token = $2 AND c.attempt = $3 AND c.state = 1
  RETURNING 1)
SELECT 1 / pg_catalog.count(*) FROM done

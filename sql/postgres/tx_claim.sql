-- One new claim, in the caller's transaction; claim_insert for one row.
-- $1 id, $2 attempt, $3 fingerprint, $4 retry, $5 idempotent, $6 lease us, $7 request us,
-- $8 retention us, $9 mode, $10 scope, $11 operation, $12 key, $13 holder.
INSERT INTO semel.command (id, state, token, attempt, fingerprint, retry, idempotent, maybe_executed,
  lease_until, lease_us, claimed_at, request_until, retention_us, created_at, mode, scope,
  operation, key, holder)
SELECT $1, 1, (extract(epoch FROM c.t) * 1000000)::bigint, $2, $3, $4, $5, false,
  c.t + $6::bigint * interval '1 microsecond', $6::bigint, c.t,
  c.t + $7::bigint * interval '1 microsecond', $8, c.t, $9, $10, $11, $12, $13
FROM (SELECT pg_catalog.clock_timestamp() AS t OFFSET 0) c
ON CONFLICT DO NOTHING
RETURNING id, attempt, token, created_at, pg_catalog.clock_timestamp()

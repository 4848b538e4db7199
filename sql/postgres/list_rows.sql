-- A walk in order of creation.  $1, $2 where it stands; $3 how many rows.
SELECT c.id, c.state, c.token, c.attempt, c.fingerprint, c.retry, c.idempotent, c.maybe_executed,
  c.lease_until, c.lease_us, c.claimed_at, c.request_until, c.retention_us, c.expire_at,
  c.created_at, clock_timestamp(), c.mode, c.scope, c.operation, c.key, c.holder
FROM semel.command c
WHERE (c.created_at, c.id) > ($1, $2)
ORDER BY c.created_at, c.id
LIMIT $3

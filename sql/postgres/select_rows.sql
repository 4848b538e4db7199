-- Rows as they are now, with label and reply.  $1 ids; $2 bodies longer than this are left out.
SELECT c.id, c.state, c.token, c.attempt, c.fingerprint, c.retry, c.idempotent, c.maybe_executed,
  c.lease_until, c.lease_us, c.claimed_at, c.request_until, c.retention_us, c.expire_at,
  c.created_at, pg_catalog.clock_timestamp(), c.mode, c.scope, c.operation, c.key, c.holder,
  c.status, c.flags, c.headers,
  CASE WHEN pg_catalog.octet_length(c.body) <= $2 THEN c.body END, pg_catalog.octet_length(c.body)
FROM semel.command c
WHERE c.id = ANY ($1)

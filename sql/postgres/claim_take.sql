-- Rows that a claim or an extension changes, as core/command.h decided, if they are still as they were read: locked
-- in order first (rule B1), guarded by everything the decision looked at.  A claim that runs
-- brings its own label and forgets the reply.  Columns of the arrays:
-- (Ids as ranges: see complete.sql.)
-- guard: $1 id, $2 token, $3 attempt, $4 state, $5 lease_until, $6 expire_at;
-- new:   $7 state, $8 token, $9 attempt, $10 fingerprint, $11 retry, $12 idempotent,
--        $13 maybe_executed, $14 lease_until, $15 lease us, $16 claimed_at, $17 request_until,
--        $18 retention us;
-- label: $19 whether it runs, $20 scope, $21 operation, $22 key, $23 holder, $24 mode.
WITH locked AS MATERIALIZED (
  SELECT c.id AS locked_id, u.*
  FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::smallint[], $5::timestamptz[],
              $6::timestamptz[], $7::smallint[], $8::bigint[], $9::bytea[], $10::bytea[],
              $11::boolean[], $12::boolean[], $13::boolean[], $14::timestamptz[], $15::bigint[],
              $16::timestamptz[], $17::timestamptz[], $18::bigint[], $19::boolean[], $20::bytea[],
              $21::bytea[], $22::bytea[], $23::bytea[], $24::smallint[]) WITH ORDINALITY
       AS u(id, was_token, was_attempt, was_state, was_lease_until, was_expire_at, state, token,
            attempt, fingerprint, retry, idempotent, maybe_executed, lease_until, lease_us,
            claimed_at, request_until, retention_us, runs, scope, operation, key, holder, mode, n)
  JOIN semel.command c ON c.id >= u.id AND c.id <= u.id
  WHERE c.token = u.was_token AND c.attempt = u.was_attempt AND c.state = u.was_state
    AND c.lease_until = u.was_lease_until AND c.expire_at IS NOT DISTINCT FROM u.was_expire_at
  ORDER BY u.id
  FOR UPDATE OF c)
UPDATE semel.command c
SET state = k.state, token = k.token, attempt = k.attempt, fingerprint = k.fingerprint,
    retry = k.retry, idempotent = k.idempotent, maybe_executed = k.maybe_executed,
    lease_until = k.lease_until, lease_us = k.lease_us, claimed_at = k.claimed_at,
    request_until = k.request_until, retention_us = k.retention_us,
    mode = CASE WHEN k.runs THEN k.mode ELSE c.mode END,
    scope = CASE WHEN k.runs THEN k.scope ELSE c.scope END,
    operation = CASE WHEN k.runs THEN k.operation ELSE c.operation END,
    key = CASE WHEN k.runs THEN k.key ELSE c.key END,
    holder = CASE WHEN k.runs THEN k.holder ELSE c.holder END,
    status = CASE WHEN k.runs THEN NULL ELSE c.status END,
    flags = CASE WHEN k.runs THEN NULL ELSE c.flags END,
    headers = CASE WHEN k.runs THEN NULL ELSE c.headers END,
    body = CASE WHEN k.runs THEN NULL ELSE c.body END
FROM locked k
WHERE c.id >= k.locked_id AND c.id <= k.locked_id
RETURNING k.n, pg_catalog.clock_timestamp()

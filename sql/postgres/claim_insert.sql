-- New claims.  Who is in the result holds its claim once the commit is acknowledged; the others
-- look at the row with a statement of their own (rule B5).  Columns of the arrays:
-- $1 id, $2 attempt, $3 fingerprint, $4 retry, $5 idempotent, $6 lease us, $7 request us,
-- $8 retention us, $9 mode, $10 scope, $11 operation, $12 key, $13 holder.
INSERT INTO semel.command (id, state, token, attempt, fingerprint, retry, idempotent, maybe_executed,
  lease_until, lease_us, claimed_at, request_until, retention_us, created_at, mode, scope,
  operation, key, holder)
SELECT o.id, 1, (extract(epoch FROM o.t) * 1000000)::bigint, o.attempt, o.fingerprint, o.retry,
  o.idempotent, false, o.t + o.lease * interval '1 microsecond', o.lease, o.t,
  o.t + o.request * interval '1 microsecond', o.retention, o.t, o.mode, o.scope,
  o.operation, o.key, o.holder
FROM (SELECT s.*, clock_timestamp() AS t
      FROM (SELECT *
            FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::boolean[], $5::boolean[],
                        $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[], $10::bytea[],
                        $11::bytea[], $12::bytea[], $13::bytea[])
                 AS u(id, attempt, fingerprint, retry, idempotent, lease, request, retention, mode,
                      scope, operation, key, holder)
            ORDER BY id) s
      OFFSET 0) o
ON CONFLICT DO NOTHING
RETURNING id, attempt, token, created_at, clock_timestamp()

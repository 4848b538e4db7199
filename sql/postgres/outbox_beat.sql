-- Join or renew (rule C1): waits only for a takeover of this very relay, never for a mark.
-- $1 id, $2 info, $3 lease in microseconds.
INSERT INTO semel.relay_member AS m (id, outbox, info, lease_until)
VALUES ($1::bytea, 'semel.outbox', $2::text,
        clock_timestamp() + $3::bigint * interval '1 microsecond')
ON CONFLICT (id) DO UPDATE
SET info = excluded.info, lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'

-- The takeover.  Waits for marks of the silent owner that are under way, and no longer than the lock
-- timeout.  $1 slots, $2 me, $3 owners that were found silent and are locked.
UPDATE semel.relay_slot s
SET epoch = s.epoch + 1, owner = $2::bytea
FROM (SELECT r.slot FROM semel.relay_slot r
      WHERE r.outbox = 'semel.outbox' AND r.slot = ANY ($1::smallint[])
        AND (r.owner IS NULL OR r.owner = ANY ($3::bytea[]))
      ORDER BY r.slot FOR UPDATE) free
WHERE s.outbox = 'semel.outbox' AND s.slot = free.slot
RETURNING s.slot

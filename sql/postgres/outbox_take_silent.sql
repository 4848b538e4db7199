-- Lock the silent owners of these slots; a lease that was renewed meanwhile is looked at again once the
-- lock is there.  $1 slots.
SELECT m.id FROM semel.relay_member m
WHERE m.id IN (SELECT s.owner FROM semel.relay_slot s
               WHERE s.outbox = 'semel.outbox' AND s.slot = ANY ($1::smallint[]))
  AND m.lease_until < clock_timestamp()
ORDER BY m.id FOR UPDATE

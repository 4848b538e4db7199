-- Relays that have been silent for long and own nothing are forgotten.
DELETE FROM semel.relay_member
WHERE id IN (SELECT m.id FROM semel.relay_member m
             WHERE m.lease_until < clock_timestamp() - interval '10 minutes'
               AND NOT EXISTS (SELECT 1 FROM semel.relay_slot s WHERE s.owner = m.id)
             FOR UPDATE SKIP LOCKED)

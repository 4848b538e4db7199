-- Slots that are ours go back; their epoch rises, so that nothing of ours can still be marked.
-- $1 slots, $2 me.
UPDATE semel.relay_slot s
SET epoch = s.epoch + 1, owner = NULL
FROM (SELECT r.slot FROM semel.relay_slot r
      WHERE r.outbox = 'semel.outbox' AND r.slot = ANY ($1::smallint[]) AND r.owner = $2::bytea
      ORDER BY r.slot FOR UPDATE) mine
WHERE s.outbox = 'semel.outbox' AND s.slot = mine.slot

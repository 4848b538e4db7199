-- Slots that are ours go back; their epoch rises, so that nothing of ours can still be marked.  Those whose last
-- batch is not settled get an owner who is never there: free for whoever is in the same mode, and the mode does
-- not change before one has recovered them (rule C8a).
-- $1 slots, $2 me, $3 slots that are not settled.
UPDATE semel.relay_slot s
SET epoch = s.epoch + 1,
    owner = CASE WHEN s.slot = ANY ($3::smallint[]) THEN decode(repeat('00', 16), 'hex') END
FROM (SELECT r.slot FROM semel.relay_slot r
      WHERE r.outbox = 'semel.outbox' AND r.slot = ANY ($1::smallint[]) AND r.owner = $2::bytea
      ORDER BY r.slot FOR UPDATE) mine
WHERE s.outbox = 'semel.outbox' AND s.slot = mine.slot

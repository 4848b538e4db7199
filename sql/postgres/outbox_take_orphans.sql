-- An owner without a row, as somebody may have deleted it, gets one whose lease is over: there must be
-- something to lock, so that its renewal and a takeover cannot both succeed.
INSERT INTO semel.relay_member (id, outbox, info, lease_until)
SELECT DISTINCT s.owner, s.outbox, '?', '-infinity'::timestamptz
FROM semel.relay_slot s
WHERE s.outbox = 'semel.outbox' AND s.owner IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM semel.relay_member m WHERE m.id = s.owner)
ON CONFLICT (id) DO NOTHING

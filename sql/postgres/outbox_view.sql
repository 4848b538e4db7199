-- The slots as they are now, and the outbox.  $1 who asks.
SELECT s.slot, s.epoch, coalesce(s.owner = $1::bytea, false),
  s.owner IS NULL OR m.lease_until IS NULL OR m.lease_until < clock_timestamp(),
  CASE WHEN s.owner IS NULL THEN '' ELSE coalesce(m.info, '?') END,
  CASE WHEN m.lease_until > '-infinity'
    THEN (extract(epoch FROM m.lease_until - clock_timestamp()) * 1000000)::bigint ELSE 0 END,
  (SELECT count(*) FROM semel.relay_member a
   WHERE a.outbox = 'semel.outbox' AND a.lease_until >= clock_timestamp()),
  t.uuid, t.mode, s.owner
FROM semel.relay_slot s
JOIN semel.outbox_meta t ON t.outbox = s.outbox
LEFT JOIN semel.relay_member m ON m.id = s.owner
WHERE s.outbox = 'semel.outbox'
ORDER BY s.slot

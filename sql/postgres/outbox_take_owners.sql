-- Who owns what, without waiting for anybody.
SELECT s.slot, s.owner FROM semel.relay_slot s WHERE s.outbox = 'semel.outbox' ORDER BY s.slot

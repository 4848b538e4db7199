-- The relay's way to its rows: it has only those that are not finished (O45).
CREATE INDEX outbox_open ON semel.outbox (slot, id) WHERE status IN ('PENDING', 'PUBLISHING')

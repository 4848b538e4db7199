-- Rows that hold up their key: tried and waiting, or being published in two phases.
CREATE INDEX outbox_held ON semel.outbox (slot, id)
WHERE status = 'PUBLISHING' OR (status = 'PENDING' AND attempts > 0)

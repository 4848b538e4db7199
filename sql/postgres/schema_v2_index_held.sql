-- Rows that hold up their key: tried and waiting, or being published in two phases.  They are few, and
-- read all at once.
CREATE INDEX outbox_held ON semel.outbox (id) WHERE held

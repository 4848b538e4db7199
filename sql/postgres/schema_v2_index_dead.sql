-- Dead rows: listed, retried, and what their keys wait for under --on-dead block.
CREATE INDEX outbox_dead ON semel.outbox (id) WHERE status = 'DEAD'

-- Unfinished rows that are large: while there is one, a fetch counts bytes.
CREATE INDEX outbox_large ON semel.outbox (id) WHERE large

-- The outbox gets its name once.
INSERT INTO semel.outbox_meta (outbox) VALUES ('semel.outbox')

-- All slots are there from the start, so that a take is always an update.
INSERT INTO semel.relay_slot (outbox, slot) SELECT 'semel.outbox', generate_series(0, 15)

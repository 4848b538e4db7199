-- One take at a time.
SELECT t.mode FROM semel.outbox_meta t WHERE t.outbox = 'semel.outbox' FOR UPDATE

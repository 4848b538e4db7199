-- Kept rows by age: for prune and republish.
CREATE INDEX outbox_published ON semel.outbox (published_at) WHERE status = 'PUBLISHED'

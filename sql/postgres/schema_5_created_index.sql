-- The only secondary index: created_at never changes, so that updates stay HOT (rules A3, B6).
CREATE INDEX command_created_at ON semel.command (created_at)

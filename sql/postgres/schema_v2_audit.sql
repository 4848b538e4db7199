-- The audit is for operators' decisions about rows of the outbox too.
ALTER TABLE semel.audit
  ALTER COLUMN command_id DROP NOT NULL,
  ALTER COLUMN attempt DROP NOT NULL,
  ALTER COLUMN state_before DROP NOT NULL,
  ADD COLUMN subject text NOT NULL DEFAULT 'command',
  ADD COLUMN row_id bigint,
  ADD COLUMN event_id uuid,
  ADD COLUMN row_count bigint

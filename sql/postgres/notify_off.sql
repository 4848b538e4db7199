-- No wake-ups; polling always works.
DROP TRIGGER IF EXISTS semel_outbox_notify ON semel.outbox

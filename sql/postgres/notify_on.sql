-- One wake-up for each statement that adds rows (rule C11).
CREATE TRIGGER semel_outbox_notify AFTER INSERT ON semel.outbox REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION semel.outbox_notify_slots()

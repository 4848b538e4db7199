-- For `semel migrate --notify on` (rule C11): one wake-up a statement, and none without it.
CREATE FUNCTION semel.outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('semel_outbox', '');
  RETURN NULL;
END $$

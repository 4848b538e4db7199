-- What wakes relays says in which slots the rows are (one bit each), so that only the lanes are woken that
-- have them.  Not semel.outbox_notify(), which says nothing: triggers that were made before still call it.
CREATE OR REPLACE FUNCTION semel.outbox_notify_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('semel_outbox', a.slots::text)
  FROM (SELECT bit_or(1 << slot) AS slots FROM added) a WHERE a.slots IS NOT NULL;
  RETURN NULL;
END $$

-- Of what `semel migrate --for-table` prints: the outbox gets its name, its slots and its uuid, or takes those
-- along that it has under a name of before.  No statement of a relay.
-- $1 the table, quoted; $2 what it was called before (--renamed-from), quoted; empty: nothing was said.
DO $semel$
DECLARE
  t CONSTANT regclass := '$1'::regclass;
  said CONSTANT text := nullif('$2', '');
  bare text; called text; was text; kind text; moved boolean := false;
BEGIN
  SELECT '"' || replace(c.relname, '"', '""') || '"',
@mapping_name.part
  ,
@mapping_kind.part
  INTO bare, called, kind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = t;
  IF kind IS NOT NULL THEN
    RAISE EXCEPTION '% is %: an outbox is an ordinary table that no other inherits from', called, kind;
  END IF;
  IF said IS NULL AND to_regclass(bare) IS NULL
     AND EXISTS (SELECT 1 FROM semel.outbox_meta m WHERE m.outbox = bare)
     AND NOT EXISTS (SELECT 1 FROM semel.outbox_meta m WHERE m.outbox = called) THEN
    RAISE EXCEPTION 'semel.outbox_meta has %, which says no schema', bare USING HINT = 'If that is '
      || called || ', add --renamed-from; if it is the table of another schema, do that for it first.';
  END IF;
  IF said LIKE '%"."%' AND said <> called AND to_regclass(said) IS NOT NULL THEN
    RAISE EXCEPTION 'there is a table %: --renamed-from is for the name that % had before', said, called;
  END IF;
  FOR was IN SELECT m.outbox FROM semel.outbox_meta m
             WHERE m.outbox <> called AND (m.outbox = said OR m.outbox = bare AND to_regclass(bare) = t)
             FOR UPDATE LOOP
    IF EXISTS (SELECT 1 FROM semel.outbox_meta m WHERE m.outbox = called) THEN
      RAISE EXCEPTION 'semel.outbox_meta has this table twice, as % and as %', called, was USING HINT =
        'Stop the relays of both, and delete the rows of the one that is not to stay from '
        || 'semel.outbox_meta, semel.relay_slot and semel.relay_member.';
    END IF;
    IF EXISTS (SELECT 1 FROM semel.relay_member r
               WHERE r.outbox = was AND r.lease_until >= clock_timestamp()) THEN
      RAISE EXCEPTION 'relays run on % under its name of before, %', called, was
        USING HINT = 'Stop them, and run this again.';
    END IF;
    UPDATE semel.outbox_meta SET outbox = called WHERE outbox = was;
    UPDATE semel.relay_slot SET outbox = called WHERE outbox = was;
    UPDATE semel.relay_member SET outbox = called WHERE outbox = was;
    moved := true;
  END LOOP;
  IF said <> called AND NOT moved
     AND NOT EXISTS (SELECT 1 FROM semel.outbox_meta m WHERE m.outbox = called) THEN
    RAISE EXCEPTION 'semel.outbox_meta has no %', said;
  END IF;
  INSERT INTO semel.relay_slot (outbox, slot) SELECT called, generate_series(0, 15)
  ON CONFLICT DO NOTHING;
  INSERT INTO semel.outbox_meta (outbox) VALUES (called) ON CONFLICT DO NOTHING;
END $semel$;

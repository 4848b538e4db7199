-- Other names of this outbox: those of before, which were the table's name as somebody had spelled it and the
-- search_path found it (1), and those that are no table's any more, when this one has no name: it may have been
-- renamed (2).  Names with a schema are looked for in the catalogue: to_regclass() fails where a schema is
-- not ours.  The second list is hashed (NOT IN), however many tables there are.
WITH me AS (
  SELECT c.oid, '"' || replace(c.relname, '"', '""') || '"' AS bare,
    EXISTS (SELECT 1 FROM semel.outbox_meta t WHERE t.outbox = 'semel.outbox') AS named
  FROM pg_class c WHERE c.oid = to_regclass('semel.outbox')),
other AS (
  SELECT t.outbox, CASE WHEN t.outbox = me.bare AND to_regclass(me.bare) = me.oid THEN 1
      WHEN me.named THEN 0
      WHEN t.outbox NOT IN (SELECT
@mapping_name.part
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        UNION ALL SELECT '"' || replace(c.relname, '"', '""') || '"' FROM pg_class c) THEN 2
      ELSE 0 END AS what
  FROM semel.outbox_meta t, me
  WHERE t.outbox <> 'semel.outbox')
SELECT x.outbox, x.what FROM other x WHERE x.what > 0 ORDER BY x.what, x.outbox LIMIT 1

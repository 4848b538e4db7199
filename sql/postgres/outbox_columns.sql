-- The columns of a table, how it is called as an outbox, and what it is when it can be none.  $1 its name,
-- quoted.
SELECT a.attname::text, format_type(a.atttypid, NULL), n.nspname || '.' || c.relname,
@mapping_name.part
  ,
@mapping_kind.part
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = to_regclass($1::text)

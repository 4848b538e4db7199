-- The columns of a table, and whether it is a table at all.  $1 its name, quoted.
SELECT a.attname::text, format_type(a.atttypid, NULL), a.attgenerated <> '' OR a.attidentity <> ''
FROM pg_attribute a
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped

-- Kept rows by topic, of the first so many; and about how many rows the table has.  $1 so many.
SELECT a.topic, count(*),
  (SELECT c.reltuples::bigint FROM pg_class c WHERE c.oid = to_regclass('semel.outbox'))
FROM (SELECT o.topic AS topic FROM semel.outbox o WHERE o.status = 'PUBLISHED' LIMIT $1::bigint) a
GROUP BY a.topic

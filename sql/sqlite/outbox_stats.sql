-- Rows by state and topic; of the published ones, which may be a history of millions, so many.  ?1 so many.
SELECT 'PENDING', topic, count(*) FROM semel_outbox WHERE status = 'PENDING' GROUP BY topic
UNION ALL
SELECT 'DEAD', topic, count(*) FROM semel_outbox WHERE status = 'DEAD' GROUP BY topic
UNION ALL
SELECT 'PUBLISHED', topic, count(*)
FROM (SELECT topic FROM semel_outbox WHERE status = 'PUBLISHED' LIMIT ?1) GROUP BY topic

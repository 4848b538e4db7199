-- Rows by state and topic.
SELECT 'PENDING', topic, count(*) FROM semel_outbox WHERE status = 'PENDING' GROUP BY topic
UNION ALL
SELECT 'PUBLISHED', topic, count(*) FROM semel_outbox WHERE status = 'PUBLISHED' GROUP BY topic
UNION ALL
SELECT 'DEAD', topic, count(*) FROM semel_outbox WHERE status = 'DEAD' GROUP BY topic

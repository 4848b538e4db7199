-- Rows that are not published, by state and topic.  Two branches, each with a small index of its own.
SELECT o.status, o.topic, count(*) FROM semel.outbox o
WHERE o.status IN ('PENDING', 'PUBLISHING') GROUP BY 1, 2
UNION ALL
SELECT o.status, o.topic, count(*) FROM semel.outbox o
WHERE o.status = 'DEAD' GROUP BY 1, 2

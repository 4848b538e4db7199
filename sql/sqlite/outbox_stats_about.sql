-- How many rows the table has at most: ids have few gaps.
SELECT (SELECT max(id) FROM semel_outbox) - (SELECT min(id) FROM semel_outbox) + 1

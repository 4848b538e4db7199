-- Of each key with a row that failed, the first; the dead come first.  ?1 now on the file's calendar, ?2 DEAD rows block.
SELECT min(id), dead, next_attempt_at - ?1, key
FROM (SELECT id, 0 AS dead, next_attempt_at, key FROM semel_outbox
      WHERE status = 'PENDING' AND attempts > 0 AND key IS NOT NULL
      UNION ALL
      SELECT id, 1, NULL, key FROM semel_outbox WHERE ?2 AND status = 'DEAD' AND key IS NOT NULL)
GROUP BY key ORDER BY 2 DESC, 1

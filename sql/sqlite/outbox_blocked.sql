-- Of each key with a row that failed, the first; the dead come first, then slot by slot: who does not see all
-- knows of which slots.  semel_slot() is ours (sqlite_outbox_rows.c).
-- ?1 now on the file's calendar, ?2 DEAD rows block, ?3 slots, bit by bit, ?4 at most so many.
SELECT min(id), dead, next_attempt_at - ?1, key, slot
FROM (SELECT id, 0 AS dead, next_attempt_at, key, semel_slot(key) AS slot FROM semel_outbox
      WHERE status = 'PENDING' AND attempts > 0 AND key IS NOT NULL
      UNION ALL
      SELECT id, 1, NULL, key, semel_slot(key) FROM semel_outbox
      WHERE ?2 AND status = 'DEAD' AND key IS NOT NULL)
WHERE ?3 >> slot & 1
GROUP BY key ORDER BY 2 DESC, 5, 1 LIMIT ?4

-- The rows that may go (rules C4, C5): a key waits behind its first row in backoff, and where the
-- caller says so.  semel_blocked() is ours (sqlite_outbox_rows.c).
-- ?1 now on the file's calendar.
SELECT id, attempts, created_at, event_id, topic, key, traceparent, "partition", headers, payload
FROM semel_outbox AS o
WHERE status = 'PENDING'
  AND (next_attempt_at IS NULL OR next_attempt_at <= ?1)
  AND NOT semel_blocked(key)
  AND NOT EXISTS (SELECT 1 FROM semel_outbox AS e
                  WHERE e.status = 'PENDING' AND e.attempts > 0 AND e.key = o.key AND e.id < o.id
                    AND e.next_attempt_at > ?1)
ORDER BY id

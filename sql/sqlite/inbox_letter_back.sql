-- It failed again.  ?1 id, ?2 reason.
UPDATE semel_dead_letter SET state = 0, attempts = attempts + 1, reason = ?2
WHERE id = ?1 AND state IN (0, 1)

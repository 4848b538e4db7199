-- The try was nobody's fault: the letter is as it was.  ?1 id, ?2 state, ?3 reason.
UPDATE semel_dead_letter SET state = ?2, attempts = attempts - 1, reason = ?3
WHERE id = ?1 AND state = 0

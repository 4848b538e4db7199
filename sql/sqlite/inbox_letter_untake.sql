-- The try was nobody's fault: the letter is as it was, if the take is what happened to it last (rule D2).
-- ?1 id, ?2 state, ?3 reason, ?4 attempts before the take, ?5 the reason that the take gave it.
UPDATE semel_dead_letter SET state = ?2, attempts = ?4, reason = ?3
WHERE id = ?1 AND state = 0 AND attempts = ?4 + 1 AND reason = ?5

-- A letter is going to be tried: it is DEAD from now on, and the try is counted (rule D3).  ?1 id, ?2 the
-- reason that it has when nobody ever says how the try ended.
UPDATE semel_dead_letter SET state = 0, attempts = attempts + 1, reason = ?2
WHERE id = ?1

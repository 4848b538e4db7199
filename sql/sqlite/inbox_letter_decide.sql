-- An operator decides.  ?1 consumer ('' any), ?2 id (0: all), ?3 the new state, ?4 who, ?5 why, ?6 now.  What
-- is in RETRY can still be discarded.
UPDATE semel_dead_letter
SET state = ?3, decided_us = ?6, decided_by = ?4,
    reason = CASE WHEN ?5 = '' THEN reason ELSE reason || '; ' || ?5 END
WHERE state IN (0, 1) AND (state = 0 OR ?3 = 3) AND (?1 = '' OR consumer = ?1) AND (?2 = 0 OR id = ?2)

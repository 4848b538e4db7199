-- The try failed: it stays DEAD, unless somebody has decided meanwhile.  $1 id, $2 reason.
UPDATE semel.dead_letter SET reason = $2
WHERE id = $1 AND state = 0

-- It was applied, in this transaction.  $1 id.
UPDATE semel.dead_letter SET state = 2, decided_at = pg_catalog.clock_timestamp() WHERE id = $1

-- It was applied, in this transaction.  ?1 id, ?2 now.
UPDATE semel_dead_letter SET state = 2, decided_us = ?2 WHERE id = ?1

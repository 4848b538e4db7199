-- Forget tries that were counted and never made: whoever counted them ended, and another had applied
-- the event.  ?1 consumer, ?2 older than this.
DELETE FROM semel_inbox_attempt WHERE consumer = ?1 AND last_us < ?2

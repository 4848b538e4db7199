-- ?1 slot, ?2 who.
UPDATE semel_relay_slot SET owner = NULL, info = NULL WHERE slot = ?1 AND owner = ?2

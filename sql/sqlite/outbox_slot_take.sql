-- ?1 slot, ?2 who, ?3 who in words.
UPDATE semel_relay_slot SET epoch = epoch + 1, owner = ?2, info = ?3 WHERE slot = ?1

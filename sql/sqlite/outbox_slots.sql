-- Epochs and owners.
SELECT slot, epoch, owner, info FROM semel_relay_slot ORDER BY slot

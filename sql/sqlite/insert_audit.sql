-- ?1 wall clock, ?2 rowid of the command, ?3 verb, ?4 reason, ?5 who, ?6 state before, ?7 state after.
INSERT INTO semel_audit (at_us, id, key, verb, reason, who, state_before, state_after)
SELECT ?1, id, key, ?3, ?4, ?5, ?6, ?7 FROM semel_command WHERE rowid = ?2

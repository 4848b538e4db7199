-- ?1 rowid.
SELECT mode, scope, operation, key, holder FROM semel_command WHERE rowid = ?1

-- ?1..?12 the row (sqlite_row.c, row_bind), ?13 id, ?14 created_us, ?15 mode, ?16 scope,
-- ?17 operation, ?18 key, ?19 holder.
INSERT INTO semel_command
  (state, token, attempt, fingerprint, flags, boot, lease_until_us, lease_len_us, claimed_us,
   request_until_us, retention_us, expire_us, id, created_us, mode, scope, operation, key, holder)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)

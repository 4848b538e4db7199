-- A new holder takes the row; an old reply is forgotten.
-- ?1..?12 the row, ?13 rowid, ?14 mode, ?15 scope, ?16 operation, ?17 key, ?18 holder.
UPDATE semel_command SET
  state = ?1, token = ?2, attempt = ?3, fingerprint = ?4, flags = ?5, boot = ?6,
  lease_until_us = ?7, lease_len_us = ?8, claimed_us = ?9, request_until_us = ?10,
  retention_us = ?11, expire_us = ?12, mode = ?14, scope = ?15, operation = ?16, key = ?17,
  holder = ?18, status = NULL, reply_flags = NULL, headers = NULL, body = NULL
WHERE rowid = ?13

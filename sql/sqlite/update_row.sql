-- ?1..?12 the row, ?13 rowid.
UPDATE semel_command SET
  state = ?1, token = ?2, attempt = ?3, fingerprint = ?4, flags = ?5, boot = ?6,
  lease_until_us = ?7, lease_len_us = ?8, claimed_us = ?9, request_until_us = ?10,
  retention_us = ?11, expire_us = ?12
WHERE rowid = ?13

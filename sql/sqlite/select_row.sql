-- ?1 id.  What decisions look at.
SELECT rowid, id, state, token, attempt, fingerprint, flags, boot, lease_until_us, lease_len_us,
       claimed_us, request_until_us, retention_us, expire_us, created_us
FROM semel_command WHERE id = ?1

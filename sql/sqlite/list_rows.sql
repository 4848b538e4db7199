-- ?1 created_us and ?2 id of the last row seen, ?3 at most so many.
SELECT rowid, id, state, token, attempt, fingerprint, flags, boot, lease_until_us, lease_len_us,
       claimed_us, request_until_us, retention_us, expire_us, created_us,
       mode, scope, operation, key, holder
FROM semel_command WHERE (created_us, id) > (?1, ?2) ORDER BY created_us, id LIMIT ?3

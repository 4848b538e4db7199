-- The same rows, locked until the transaction ends (mode single).  Never SKIP LOCKED (rule C6): a
-- row that somebody holds is waited for, since it is the first of its key.
-- $1 slots, $2 most rows of each, $3 blocked keys, $4 bytes: stop at about so many. $5 most rows of all together.
@outbox_counted.part
        FOR UPDATE OF o) r) r
WHERE r.bytes_before < $4::bigint
LIMIT $5::bigint

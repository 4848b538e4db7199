-- Rows that may go now, counted by their bytes (mode owned and exactly-once, where rows are large).
-- $1 slots, $2 most rows of each, $3 blocked keys, $4 bytes: stop at about so many. $5 most rows of all together.
@outbox_counted.part
      ) r) r
WHERE r.bytes_before < $4::bigint
LIMIT $5::bigint

-- Rows that may go now (mode owned and exactly-once).
-- Rows of more bytes than their part of a batch come without them, in slot -1: the batch is asked for
-- again by outbox_fetch_bytes.sql then.  A running sum costs as much as reading the rows does.
-- $1 slots, $2 most rows of each, $3 blocked keys, $4 a row's part of the bytes,
-- $5 most rows of all together.
SELECT CASE WHEN r.small THEN r.slot ELSE -1 END, r.id, r.attempts, r.created_at, r.event_id, r.topic,
  CASE WHEN r.small THEN r.key END, CASE WHEN r.small THEN r.payload END,
  CASE WHEN r.small THEN r.headers END, r.partition, r.traceparent, r.place, r.published_at
FROM unnest($1::smallint[], $2::integer[]) AS q (slot, quota)
CROSS JOIN LATERAL (
  SELECT o.slot AS slot, o.id AS id, o.attempts AS attempts, o.created_at AS created_at,
    o.event_id AS event_id, o.topic AS topic, o.key AS key, o.payload AS payload,
    o.headers AS headers, o.partition AS partition, o.traceparent AS traceparent,
    o.ctid AS place, o.published_at::timestamptz AS published_at,
    coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.key), 0)
      + coalesce(pg_column_size(o.headers), 0) <= $4::bigint AS small
@outbox_ready.part
) r
LIMIT $5::bigint

-- One row per relay, with its lease.
CREATE TABLE semel.relay_member (
  id bytea PRIMARY KEY,
  outbox text NOT NULL,
  info text NOT NULL,
  lease_until timestamptz NOT NULL
) WITH (fillfactor = 20)

-- Who owns which slot of which outbox.  Marks lock these rows; renewals never do (rule C1).
CREATE TABLE semel.relay_slot (
  outbox text NOT NULL,
  slot smallint NOT NULL CHECK (slot BETWEEN 0 AND 15),
  epoch bigint NOT NULL DEFAULT 0,
  owner bytea,
  PRIMARY KEY (outbox, slot)
) WITH (fillfactor = 20)

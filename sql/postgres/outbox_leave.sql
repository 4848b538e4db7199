-- Be gone.  $1 me.
DELETE FROM semel.relay_member WHERE id = $1::bytea

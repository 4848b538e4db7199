-- The slot of a row (rule C1): the same as src/core/event.h.  plpgsql, because its expression is
-- planned once a session; convert_to() is called stable for the sake of user-made conversions, and
-- UTF8 is none.
CREATE FUNCTION semel.slot_of(key text, id bigint) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  digest bytea := sha256(convert_to(coalesce(key, id::text), 'UTF8'));
BEGIN
  RETURN ((get_byte(digest, 0) << 8) + get_byte(digest, 1)) % 16;
END $$

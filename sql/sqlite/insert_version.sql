-- ?1 version, ?2 wall clock.
INSERT INTO semel_schema_version (version, at_us) VALUES (?1, ?2)

-- Which outbox this is.
SELECT uuid, mode FROM semel_outbox_meta WHERE one = 1

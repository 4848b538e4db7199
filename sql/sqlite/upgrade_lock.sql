-- Changes nothing, but needs the write lock.
DELETE FROM semel_command WHERE id IS NULL

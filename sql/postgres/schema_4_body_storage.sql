-- Bodies are stored as they are: no time is spent on compressing them.
ALTER TABLE semel.command ALTER COLUMN body SET STORAGE EXTERNAL

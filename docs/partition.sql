-- Partitions the tables that grow with the length of sessions, by hash of (tenant_id, session_id): docs/scale.md.
--
-- For a database whose schema is there (satchel migrate up), while no program has it open; rows that are there are copied. It is one
-- transaction: it is done or it is not. Constraints and indexes keep their names, so later steps of the schema find them.

DO $$
DECLARE
    parts CONSTANT int := 16;  -- choose once: a power of two, not more than the disks and the years ahead need
    name text;
    plain text;
    settings text;
    statements text[];
    one text;
BEGIN
    FOREACH name IN ARRAY ARRAY['events', 'idempotency_records', 'tool_calls', 'runs'] LOOP
        plain := name || '_plain';
        SELECT array_agg(definition) INTO statements FROM (
            SELECT format('ALTER TABLE %I ADD CONSTRAINT %I %s', name, conname, pg_get_constraintdef(oid)) AS definition
            FROM pg_constraint WHERE conrelid = name::regclass AND contype = 'p'
            UNION ALL
            SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = name::regclass AND NOT indisprimary
        ) AS found;
        SELECT coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '') INTO settings
        FROM pg_class WHERE oid = name::regclass;
        EXECUTE format('ALTER TABLE %I RENAME TO %I', name, plain);
        EXECUTE format('CREATE TABLE %I (LIKE %I) PARTITION BY HASH (tenant_id, session_id)', name, plain);
        FOR part IN 0 .. parts - 1 LOOP
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS %s, REMAINDER %s)%s',
                name || '_' || part, name, parts, part, settings
            );
        END LOOP;
        EXECUTE format('INSERT INTO %I SELECT * FROM %I', name, plain);
        EXECUTE format('DROP TABLE %I', plain);
        FOREACH one IN ARRAY statements LOOP
            EXECUTE one;
        END LOOP;
    END LOOP;
END
$$;

-- Every statement on the data. A block begins at its name and is one statement. $1 and $2 are tenant_id and session_id where
-- one session is meant; statements for many take arrays. Each statement sees one snapshot, so each answer of the store is
-- one statement: rows of several kinds come as arrays of rows, or as parts of a union. What many statements share is written
-- once, as a part, and stands in them as {its name}.

-- The server's clock in microseconds, at this moment and not at the transaction's start.
-- part: now
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- part: event
event.seq, event.version, event.kind, event.at, event.actor, event.run_id, event.refers_to, event.status, event.format,
event.outcome, event.tokens, event.streamed, event.metadata, event.body

-- part: taken_back
EXISTS (
    SELECT
    FROM events AS back
    WHERE
        back.tenant_id = $1 AND back.session_id = $2 AND back.refers_to = event.seq AND back.kind = 'message_retracted'
)

-- part: call
call.seq, call.version, call.tool, call.arguments_hash, call.status, call.start_time, call.end_time, call.tool_call_id,
call.run_id, call.result_seq, call.result_kind, call.repeat_of, call.step, began.body, ended.body

-- part: call_bodies
LEFT JOIN events AS began
    ON began.tenant_id = call.tenant_id AND began.session_id = call.session_id AND began.seq = call.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call.tenant_id AND ended.session_id = call.session_id AND ended.seq = call.result_seq

-- part: run
run.run_id, run.number, run.status, run.input_seq, run.record, run.metadata, coalesce(said.body, run.input),
run.input_metadata

-- part: run_input
LEFT JOIN events AS said
    ON said.tenant_id = run.tenant_id AND said.session_id = run.session_id AND said.seq = run.input_seq

-- One row in any case, with the record if there is one.
-- part: beside_the_record
FROM (SELECT) AS always
LEFT JOIN sessions AS one ON one.tenant_id = $1 AND one.session_id = $2

-- part: call_filter
call.tenant_id = $1 AND call.session_id = $2 AND call.seq > $3 AND call.seq < $4
AND ($5::text IS NULL OR call.run_id = $5) AND ($6::text IS NULL OR call.tool = $6)
AND ($7::text IS NULL OR call.tool_call_id = $7)
AND ($8::boolean IS NULL OR (call.status = 'started') = $8)

-- part: run_filter
run.tenant_id = $1 AND run.session_id = $2 AND run.number > $3 AND run.number < $4
AND ($5::text IS NULL OR run.status = $5) AND ($7::text IS NULL OR run.parent_run_id = $7)

-- Lists: updated_at >= $3, (updated_at, session_id) < ($4, $5), status $6 at $7 (NULL: now). The CASE is
-- SessionRecord.status_at: ACTIVE turns EXPIRED, and both that and CLOSED are as good as DELETED past the retention.
-- part: list_filter
session.updated_at >= $3 AND session.updated_at <= $4
AND (session.updated_at, session.session_id) < ($4, $5)
AND CASE
    WHEN session.turns_at <= (SELECT now FROM clock) THEN
        CASE
            WHEN
                session.status = 'ACTIVE'
                AND (session.turns_at + session.retention <= (SELECT now FROM clock)) IS NOT TRUE
                THEN $6::text IS NULL OR $6 = 'EXPIRED'
            ELSE false
        END
    ELSE $6::text IS NULL OR session.status = $6
END

-- part: listed
SELECT
    (SELECT now FROM clock),
    ARRAY(
        SELECT ROW(page.session_id, page.updated_at, page.record, metadata.body)
        FROM page
        LEFT JOIN metadata ON metadata.tenant_id = $1 AND metadata.session_id = page.session_id
        ORDER BY page.updated_at DESC, page.session_id DESC
    )

-- Reading one session: its record, with it the rows

-- name: snapshot
SELECT
    {now}, one.record,
    CASE WHEN $3::boolean THEN (
        SELECT body FROM working_memory WHERE tenant_id = $1 AND session_id = $2
    ) END,
    CASE WHEN $4::boolean THEN (
        SELECT body FROM metadata WHERE tenant_id = $1 AND session_id = $2
    ) END,
    ARRAY(
        SELECT ROW({event})
        FROM events AS event
        WHERE
            event.tenant_id = $1 AND event.session_id = $2 AND event.kind = 'message'
            AND NOT {taken_back}
        ORDER BY event.seq DESC
        LIMIT $5
    ),
    ARRAY(
        SELECT ROW({call})
        FROM tool_calls AS call
        {call_bodies}
        WHERE call.tenant_id = $1 AND call.session_id = $2
        ORDER BY call.seq DESC
        LIMIT $6
    ),
    ARRAY(
        SELECT ROW({run})
        FROM runs AS run
        {run_input}
        WHERE run.tenant_id = $1 AND run.session_id = $2
        ORDER BY run.number DESC
        LIMIT $7
    )
{beside_the_record};

-- Pages of events: $3 < seq < $4, of run $5, $6 with those that were taken back; the last column says which were.
-- name: messages_ascending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({event}, {taken_back})
        FROM events AS event
        WHERE
            event.tenant_id = $1 AND event.session_id = $2 AND event.kind = 'message' AND event.seq > $3 AND event.seq < $4
            AND ($5::text IS NULL OR event.run_id = $5)
            AND ($6::boolean OR NOT {taken_back})
        ORDER BY event.seq
        LIMIT $7
    )
{beside_the_record};

-- name: messages_descending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({event}, {taken_back})
        FROM events AS event
        WHERE
            event.tenant_id = $1 AND event.session_id = $2 AND event.kind = 'message' AND event.seq > $3 AND event.seq < $4
            AND ($5::text IS NULL OR event.run_id = $5)
            AND ($6::boolean OR NOT {taken_back})
        ORDER BY event.seq DESC
        LIMIT $7
    )
{beside_the_record};


-- $8: of this kind, or of any.
-- name: events_ascending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({event}, {taken_back})
        FROM events AS event
        WHERE
            event.tenant_id = $1 AND event.session_id = $2 AND event.seq > $3 AND event.seq < $4
            AND ($5::text IS NULL OR event.run_id = $5)
            AND ($6::boolean OR NOT {taken_back})
            AND ($8::text IS NULL OR event.kind = $8)
        ORDER BY event.seq
        LIMIT $7
    )
{beside_the_record};

-- name: events_descending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({event}, {taken_back})
        FROM events AS event
        WHERE
            event.tenant_id = $1 AND event.session_id = $2 AND event.seq > $3 AND event.seq < $4
            AND ($5::text IS NULL OR event.run_id = $5)
            AND ($6::boolean OR NOT {taken_back})
            AND ($8::text IS NULL OR event.kind = $8)
        ORDER BY event.seq DESC
        LIMIT $7
    )
{beside_the_record};

-- Pages of tool calls: $3 < seq < $4, of run $5, tool $6, label $7; $8 open or ended; $10 (where it is) the arguments' hash.
-- name: tool_calls_ascending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({call})
        FROM tool_calls AS call
        {call_bodies}
        WHERE {call_filter}
        ORDER BY call.seq
        LIMIT $9
    )
{beside_the_record};

-- name: tool_calls_descending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({call})
        FROM tool_calls AS call
        {call_bodies}
        WHERE {call_filter}
        ORDER BY call.seq DESC
        LIMIT $9
    )
{beside_the_record};

-- name: equal_calls_ascending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({call})
        FROM tool_calls AS call
        {call_bodies}
        WHERE {call_filter} AND call.arguments_hash = $10
        ORDER BY call.seq
        LIMIT $9
    )
{beside_the_record};

-- name: equal_calls_descending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({call})
        FROM tool_calls AS call
        {call_bodies}
        WHERE {call_filter} AND call.arguments_hash = $10
        ORDER BY call.seq DESC
        LIMIT $9
    )
{beside_the_record};

-- Pages of runs: $3 < number < $4, of status $5, children of $7.
-- name: runs_ascending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({run})
        FROM runs AS run
        {run_input}
        WHERE {run_filter}
        ORDER BY run.number
        LIMIT $6
    )
{beside_the_record};

-- name: runs_descending
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({run})
        FROM runs AS run
        {run_input}
        WHERE {run_filter}
        ORDER BY run.number DESC
        LIMIT $6
    )
{beside_the_record};

-- One run, $3, if $4 < number < $5, of status $6, child of $8.
-- name: run
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW({run})
        FROM runs AS run
        {run_input}
        WHERE
            run.tenant_id = $1 AND run.session_id = $2 AND run.run_id = $3 AND run.number > $4 AND run.number < $5
            AND ($6::text IS NULL OR run.status = $6) AND ($8::text IS NULL OR run.parent_run_id = $8)
        LIMIT $7
    )
{beside_the_record};

-- Of one streamed message ($3, $4, $5), from the piece that holds the character at $6 on.
-- name: partial
SELECT
    {now}, one.record,
    ARRAY(
        SELECT ROW(piece.run_id, piece.attempt, piece.message, piece."offset", piece.body, piece.metadata)
        FROM partials AS piece
        WHERE
            piece.tenant_id = $1 AND piece.session_id = $2 AND piece.run_id = $3 AND piece.attempt = $4
            AND piece.message = $5
            AND piece."offset" >= coalesce((
                SELECT max(before."offset")
                FROM partials AS before
                WHERE
                    before.tenant_id = $1 AND before.session_id = $2 AND before.run_id = $3 AND before.attempt = $4
                    AND before.message = $5 AND before."offset" <= $6
            ), 0)
        ORDER BY piece."offset"
        LIMIT $7
    )
{beside_the_record};

-- Which of those who wait (for session $1, $2 beyond seq $3, or for another revision than $4) may look again: also those whose
-- session is gone, or was never there: they hear of the end.
-- name: wakeable
SELECT want.position
FROM
    unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
        AS want (tenant_id, session_id, seq, revision, position)
LEFT JOIN sessions AS one ON one.tenant_id = want.tenant_id AND one.session_id = want.session_id
WHERE
    one.status IS NULL OR one.status = 'DELETED' OR one.revision <> want.revision
    OR EXISTS (
        SELECT
        FROM events AS event
        WHERE event.tenant_id = want.tenant_id AND event.session_id = want.session_id AND event.seq > want.seq
    );

-- Across sessions

-- Lists: $1 tenant, $2 user.
-- name: sessions_of_user
WITH clock AS MATERIALIZED (SELECT coalesce($7::bigint, {now}) AS now),
page AS MATERIALIZED (
    SELECT session.session_id, session.updated_at, session.record
    FROM sessions AS session
    WHERE
        session.tenant_id = $1 AND session.user_id = $2 AND NOT session.hidden AND session.status <> 'DELETED'
        AND {list_filter}
    ORDER BY session.updated_at DESC, session.session_id DESC
    LIMIT $8
)
{listed};

-- An admin's list reads the whole of the tenant's part of the index: no index by time alone is kept for it.
-- name: sessions_of_tenant
WITH clock AS MATERIALIZED (SELECT coalesce($7::bigint, {now}) AS now),
page AS MATERIALIZED (
    SELECT session.session_id, session.updated_at, session.record
    FROM sessions AS session
    WHERE
        session.tenant_id = $1 AND $2::text IS NULL AND NOT session.hidden AND session.status <> 'DELETED'
        AND {list_filter}
    ORDER BY session.updated_at DESC, session.session_id DESC
    LIMIT $8
)
{listed};

-- Queues: those after ($1, $2).
-- name: ready_for_agent
SELECT tenant_id, session_id
FROM sessions
WHERE ready_agent = $3 AND (tenant_id, session_id) > ($1, $2)
ORDER BY tenant_id, session_id
LIMIT $4;

-- name: ready
SELECT tenant_id, session_id
FROM sessions
WHERE ready_agent IS NOT NULL AND (tenant_id, session_id) > ($1, $2)
ORDER BY tenant_id, session_id
LIMIT $3;

-- $3 the wall clock and $4 the lease clock (NULL: now), which is called $5. The lower bound holds for all; with one the planner
-- expects few rows, as there are, and takes the index.
-- name: swept
WITH clock AS MATERIALIZED (
    SELECT
        coalesce($3::bigint, {now}) AS now,
        coalesce($4::bigint, {now}) AS lease_now
)
SELECT tenant_id, session_id
FROM (
    SELECT tenant_id, session_id
    FROM sessions
    WHERE sweep_at > -9223372036854775807 AND sweep_at <= (SELECT now FROM clock) AND (tenant_id, session_id) > ($1, $2)
    UNION
    SELECT tenant_id, session_id
    FROM sessions
    WHERE
        lease_until IS NOT NULL AND lease_clock = $5 AND lease_until <= (SELECT lease_now FROM clock)
        AND (tenant_id, session_id) > ($1, $2)
    UNION
    SELECT tenant_id, session_id
    FROM sessions
    WHERE lease_until IS NOT NULL AND lease_clock < $5 AND (tenant_id, session_id) > ($1, $2)
    UNION
    SELECT tenant_id, session_id
    FROM sessions
    WHERE lease_until IS NOT NULL AND lease_clock > $5 AND (tenant_id, session_id) > ($1, $2)
) AS due
ORDER BY tenant_id, session_id
LIMIT $6;

-- All sessions, in the order of their keys.
-- name: refs
SELECT tenant_id, session_id
FROM sessions
WHERE (tenant_id, session_id) > ($1, $2)
ORDER BY tenant_id, session_id
LIMIT $3;

-- Loading what decisions need: parts of one snapshot. `position` counts the sessions that are wanted, from 1.

-- What most decisions need: $1, $2 the sessions; $3, $4, $5, $6 the keys (position, tenant, session, key).
-- name: load
SELECT 'clock' AS part, 0::bigint AS position, ROW({now}) AS found
UNION ALL
SELECT 'record', want.position, ROW(one.record)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS want (tenant_id, session_id, position)
JOIN sessions AS one ON one.tenant_id = want.tenant_id AND one.session_id = want.session_id
UNION ALL
SELECT 'key', want.position, ROW(kept.key_hash, kept.fingerprint, kept.answer)
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[]) AS want (position, tenant_id, session_id, key_hash)
JOIN idempotency_records AS kept
    ON
        kept.tenant_id = want.tenant_id AND kept.session_id = want.session_id
        AND kept.key_hash = want.key_hash;

-- All that a decision may want, each kind as position, tenant, session, and what of it: runs $7 to $10, calls $11 to $14,
-- hashes of arguments $15 to $18, events and what refers to them $19 to $22, memories $23 to $25, metadata $26 to $28, streams
-- $29 to $34, calls that runs named $35 to $39.
-- name: load_all
SELECT 'clock' AS part, 0::bigint AS position, ROW({now}) AS found
UNION ALL
SELECT 'record', want.position, ROW(one.record)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS want (tenant_id, session_id, position)
JOIN sessions AS one ON one.tenant_id = want.tenant_id AND one.session_id = want.session_id
UNION ALL
SELECT 'key', want.position, ROW(kept.key_hash, kept.fingerprint, kept.answer)
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[]) AS want (position, tenant_id, session_id, key_hash)
JOIN idempotency_records AS kept
    ON
        kept.tenant_id = want.tenant_id AND kept.session_id = want.session_id
        AND kept.key_hash = want.key_hash
UNION ALL
SELECT 'run', want.position, ROW({run})
FROM unnest($7::bigint[], $8::text[], $9::text[], $10::text[]) AS want (position, tenant_id, session_id, run_id)
JOIN runs AS run
    ON run.tenant_id = want.tenant_id AND run.session_id = want.session_id AND run.run_id = want.run_id
{run_input}
UNION ALL
SELECT 'call', want.position, ROW({call})
FROM unnest($11::bigint[], $12::text[], $13::text[], $14::bigint[]) AS want (position, tenant_id, session_id, seq)
JOIN tool_calls AS call
    ON call.tenant_id = want.tenant_id AND call.session_id = want.session_id AND call.seq = want.seq
{call_bodies}
UNION ALL
SELECT 'equal', want.position, ROW(want.arguments_hash, newest.seq)
FROM
    unnest($15::bigint[], $16::text[], $17::text[], $18::bytea[])
        AS want (position, tenant_id, session_id, arguments_hash)
CROSS JOIN LATERAL (
    SELECT call.seq
    FROM tool_calls AS call
    WHERE
        call.tenant_id = want.tenant_id AND call.session_id = want.session_id
        AND call.arguments_hash = want.arguments_hash
    ORDER BY call.arguments_hash DESC, call.seq DESC
    LIMIT 1
) AS newest
UNION ALL
SELECT 'event', want.position, ROW({event})
FROM unnest($19::bigint[], $20::text[], $21::text[], $22::bigint[]) AS want (position, tenant_id, session_id, seq)
JOIN events AS event
    ON event.tenant_id = want.tenant_id AND event.session_id = want.session_id AND event.seq = want.seq
UNION ALL
SELECT 'event', want.position, ROW({event})
FROM unnest($19::bigint[], $20::text[], $21::text[], $22::bigint[]) AS want (position, tenant_id, session_id, seq)
JOIN events AS event
    ON
        event.tenant_id = want.tenant_id AND event.session_id = want.session_id AND event.refers_to = want.seq
        AND event.kind = 'message_retracted'
UNION ALL
SELECT 'working_memory', want.position, ROW(memory.body)
FROM unnest($23::bigint[], $24::text[], $25::text[]) AS want (position, tenant_id, session_id)
JOIN working_memory AS memory ON memory.tenant_id = want.tenant_id AND memory.session_id = want.session_id
UNION ALL
SELECT 'metadata', want.position, ROW(metadata.body)
FROM unnest($26::bigint[], $27::text[], $28::text[]) AS want (position, tenant_id, session_id)
JOIN metadata ON metadata.tenant_id = want.tenant_id AND metadata.session_id = want.session_id
UNION ALL
SELECT
    'piece', want.position,
    ROW(piece.run_id, piece.attempt, piece.message, piece."offset", piece.body, piece.metadata)
FROM
    unnest($29::bigint[], $30::text[], $31::text[], $32::text[], $33::bigint[], $34::bigint[])
        AS want (position, tenant_id, session_id, run_id, attempt, message)
JOIN partials AS piece
    ON
        piece.tenant_id = want.tenant_id AND piece.session_id = want.session_id AND piece.run_id = want.run_id
        AND piece.attempt = want.attempt AND piece.message = want.message
UNION ALL
SELECT 'step', want.position, ROW({call})
FROM
    unnest($35::bigint[], $36::text[], $37::text[], $38::text[], $39::text[])
        AS want (position, tenant_id, session_id, run_id, step)
CROSS JOIN LATERAL (
    SELECT *
    FROM tool_calls AS named
    WHERE
        named.tenant_id = want.tenant_id AND named.session_id = want.session_id AND named.run_id = want.run_id
        AND named.step = want.step
    ORDER BY named.seq DESC
    LIMIT 1
) AS call
{call_bodies};

-- Writing changes: all of a batch in one statement, which is its own transaction. The sessions' rows are locked first, in the
-- order of their keys (`held`); a lock that had to wait compares the revision again with what it then finds. New sessions are
-- made after that, in the same order: no two batches can wait for each other. Then the clock is read, and what may be applied
-- is known. Answers with the positions of the changes that were applied, and the server's clock.

-- The most frequent one by far: to two sessions or more one event each without extras and its key, and nothing changes in the
-- session that other indexes hold. $1 to $18: a column for each, as one value: of texts a line for each, of numbers the literal
-- of an array, of hashes (key_hash, fingerprint) all their bytes. $19: the clock (NULL: now).
-- name: append
WITH change AS (
    SELECT
        given.*, substring($8::bytea FROM given.position::integer * 16 - 15 FOR 16) AS key_hash,
        substring($9::bytea FROM given.position::integer * 16 - 15 FOR 16) AS fingerprint
    FROM
        unnest(
            string_to_array($1, E'\n'), string_to_array($2, E'\n'), $3::text::bigint[], $4::text::bigint[],
            $5::text::bigint[], $6::text::bigint[], string_to_array($7, E'\n'), string_to_array($10, E'\n'),
            $11::text::bigint[], $12::text::bigint[], string_to_array($13, E'\n'), $14::text::bigint[],
            string_to_array($15, E'\n'), string_to_array($16, E'\n', ''), $17::text::bigint[],
            string_to_array($18, E'\n')
        ) WITH ORDINALITY AS given (
            tenant_id, session_id, base, not_after, updated_at, turns_at, record, answer, seq, version, kind, at, actor,
            run_id, tokens, body, position
        )
),
held AS MATERIALIZED (
    SELECT change.*
    FROM change
    JOIN sessions AS session ON session.tenant_id = change.tenant_id AND session.session_id = change.session_id
    WHERE
        session.revision = change.base
        AND NOT EXISTS (
            SELECT
            FROM idempotency_records AS before
            WHERE
                before.tenant_id = change.tenant_id AND before.session_id = change.session_id
                AND before.key_hash = change.key_hash
        )
    ORDER BY session.tenant_id, session.session_id
    FOR NO KEY UPDATE OF session
),
clock AS MATERIALIZED (
    SELECT coalesce($19::bigint, {now}) + 0 * locked.number AS now
    FROM (SELECT count(*) AS number FROM held) AS locked
),
updated AS (
    UPDATE sessions AS session
    SET
        updated_at = held.updated_at, turns_at = held.turns_at, revision = held.base + 1, record = held.record
    FROM held
    WHERE
        (held.not_after IS NULL OR held.not_after > (SELECT clock.now FROM clock))
        AND session.tenant_id = held.tenant_id AND session.session_id = held.session_id
    RETURNING held.*
),
kept AS (
    INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
    SELECT tenant_id, session_id, key_hash, fingerprint, answer FROM updated
),
said AS (
    INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, run_id, tokens, body)
    SELECT tenant_id, session_id, seq, version, kind, at, actor, run_id, tokens, body FROM updated
)
SELECT updated.position, (SELECT clock.now FROM clock) FROM updated;

-- The same for one session, with a value for each column: less than half the price of arrays of one.
-- name: append_one
WITH held AS MATERIALIZED (
    SELECT session.revision
    FROM sessions AS session
    WHERE
        session.tenant_id = $1 AND session.session_id = $2 AND session.revision = $3
        AND NOT EXISTS (
            SELECT
            FROM idempotency_records AS before
            WHERE before.tenant_id = $1 AND before.session_id = $2 AND before.key_hash = $8
        )
    FOR NO KEY UPDATE OF session
),
clock AS MATERIALIZED (
    SELECT coalesce($19::bigint, {now}) + 0 * held.revision AS now FROM held
),
updated AS (
    UPDATE sessions AS session
    SET updated_at = $5, turns_at = $6, revision = $3 + 1, record = $7
    FROM clock
    WHERE session.tenant_id = $1 AND session.session_id = $2 AND ($4::bigint IS NULL OR $4 > clock.now)
    RETURNING clock.now
),
kept AS (
    INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
    SELECT $1, $2, $8, $9, $10 FROM updated
),
said AS (
    INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, run_id, tokens, body)
    SELECT $1, $2, $11, $12, $13, $14, $15, $16, $17, $18 FROM updated
)
SELECT 1, updated.now FROM updated;

-- Any changes. `(… IN …) IS TRUE` is looked up in a hash, where a join of two lists might compare each with each.
--
-- $1 to $16: each change by itself; $17: the clock (NULL: now). Each with the position of its change: $18 to $21 keys that must
-- not be there, $22 to $27 keys, $28 to $44 events, $45 to $60 tool calls, $61 to $72 runs, $73 to $81 streamed pieces, $82 to $87
-- streams that end, $88 to $91 memories and $92 to $95 metadata (an empty text: none).
-- name: commit
WITH change AS MATERIALIZED (
    SELECT *
    FROM
        unnest(
            $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::text[]
        ) WITH ORDINALITY AS given (
            tenant_id, session_id, base, not_after, user_id, status, hidden, updated_at, turns_at, retention, revision,
            ready_agent, sweep_at, lease_until, lease_clock, record, position
        )
),
held AS MATERIALIZED (
    SELECT change.position
    FROM change
    JOIN sessions AS session ON session.tenant_id = change.tenant_id AND session.session_id = change.session_id
    WHERE session.revision = change.base
    ORDER BY session.tenant_id, session.session_id
    FOR NO KEY UPDATE OF session
),
clock AS MATERIALIZED (
    SELECT coalesce($17::bigint, {now}) + 0 * locked.number AS now
    FROM (SELECT count(*) AS number FROM held) AS locked
),
known AS MATERIALIZED (
    SELECT DISTINCT asked.position
    FROM
        unnest($18::bigint[], $19::text[], $20::text[], $21::bytea[]) AS asked (position, tenant_id, session_id, key_hash)
    JOIN idempotency_records AS before
        ON
            before.tenant_id = asked.tenant_id AND before.session_id = asked.session_id
            AND before.key_hash = asked.key_hash
),
timely AS MATERIALIZED (
    SELECT change.*
    FROM change
    WHERE
        (change.base IS NULL OR (change.position IN (SELECT held.position FROM held)) IS TRUE)
        AND (change.not_after IS NULL OR change.not_after > (SELECT clock.now FROM clock))
        AND (change.position IN (SELECT known.position FROM known)) IS NOT TRUE
),
updated AS (
    UPDATE sessions AS session
    SET
        user_id = timely.user_id, status = timely.status, hidden = timely.hidden, updated_at = timely.updated_at,
        turns_at = timely.turns_at, retention = timely.retention, revision = timely.revision,
        ready_agent = timely.ready_agent, sweep_at = timely.sweep_at, lease_until = timely.lease_until,
        lease_clock = timely.lease_clock, record = timely.record
    FROM timely
    WHERE
        timely.base IS NOT NULL AND session.tenant_id = timely.tenant_id
        AND session.session_id = timely.session_id
    RETURNING timely.position
),
created AS (
    INSERT INTO sessions (
        tenant_id, session_id, user_id, status, hidden, updated_at, turns_at, retention, revision, ready_agent, sweep_at,
        lease_until, lease_clock, record
    )
    SELECT
        tenant_id, session_id, user_id, status, hidden, updated_at, turns_at, retention, revision, ready_agent, sweep_at,
        lease_until, lease_clock, record
    FROM timely
    WHERE base IS NULL AND (SELECT count(*) FROM held) >= 0
    ORDER BY tenant_id COLLATE "C", session_id COLLATE "C"
    ON CONFLICT (tenant_id, session_id) DO NOTHING
    RETURNING tenant_id, session_id
),
applied AS MATERIALIZED (
    SELECT updated.position FROM updated
    UNION ALL
    SELECT timely.position
    FROM timely
    JOIN created ON created.tenant_id = timely.tenant_id AND created.session_id = timely.session_id
),
kept AS (
    INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
    SELECT new.tenant_id, new.session_id, new.key_hash, new.fingerprint, new.answer
    FROM
        unnest($22::bigint[], $23::text[], $24::text[], $25::bytea[], $26::bytea[], $27::text[])
            AS new (position, tenant_id, session_id, key_hash, fingerprint, answer)
    WHERE (new.position IN (SELECT applied.position FROM applied)) IS TRUE
),
said AS (
    INSERT INTO events (
        tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens,
        streamed, metadata, body
    )
    SELECT
        new.tenant_id, new.session_id, new.seq, new.version, new.kind, new.at, new.actor, new.run_id, new.refers_to,
        new.status, new.format, new.outcome, new.tokens,
        new.streamed, new.metadata, new.body
    FROM
        unnest(
            $28::bigint[], $29::text[], $30::text[], $31::bigint[], $32::bigint[], $33::text[], $34::bigint[], $35::text[],
            $36::text[], $37::bigint[], $38::text[], $39::text[], $40::text[], $41::bigint[], $42::bigint[], $43::text[], $44::text[]
        ) AS new (
            position, tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome,
            tokens, streamed, metadata, body
        )
    WHERE (new.position IN (SELECT applied.position FROM applied)) IS TRUE
),
called AS (
    INSERT INTO tool_calls (
        tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, tool_call_id, run_id,
        result_seq, result_kind, repeat_of, step
    )
    SELECT
        new.tenant_id, new.session_id, new.seq, new.version, new.tool, new.arguments_hash, new.status, new.start_time,
        new.end_time, new.tool_call_id, new.run_id, new.result_seq, new.result_kind, new.repeat_of, new.step
    FROM
        unnest(
            $45::bigint[], $46::text[], $47::text[], $48::bigint[], $49::bigint[], $50::text[], $51::bytea[], $52::text[],
            $53::bigint[], $54::bigint[], $55::text[], $56::text[], $57::bigint[], $58::text[], $59::bigint[], $60::text[]
        ) AS new (
            position, tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, tool_call_id,
            run_id, result_seq, result_kind, repeat_of, step
        )
    WHERE (new.position IN (SELECT applied.position FROM applied)) IS TRUE
    ON CONFLICT (tenant_id, session_id, seq) DO UPDATE
    SET
        version = excluded.version, tool = excluded.tool, arguments_hash = excluded.arguments_hash,
        status = excluded.status, start_time = excluded.start_time, end_time = excluded.end_time,
        tool_call_id = excluded.tool_call_id, run_id = excluded.run_id, result_seq = excluded.result_seq,
        result_kind = excluded.result_kind, repeat_of = excluded.repeat_of, step = excluded.step
),
ran AS (
    INSERT INTO runs (
        tenant_id, session_id, run_id, number, status, input_seq, record, metadata, input, input_metadata,
        parent_run_id
    )
    SELECT
        new.tenant_id, new.session_id, new.run_id, new.number, new.status, new.input_seq, new.record, new.metadata,
        new.input, new.input_metadata, new.parent_run_id
    FROM
        unnest(
            $61::bigint[], $62::text[], $63::text[], $64::text[], $65::bigint[], $66::text[],
            $67::bigint[], $68::text[], $69::text[], $70::text[], $71::text[], $72::text[]
        ) AS new (
            position, tenant_id, session_id, run_id, number, status, input_seq, record, metadata, input, input_metadata,
            parent_run_id
        )
    WHERE (new.position IN (SELECT applied.position FROM applied)) IS TRUE
    ON CONFLICT (tenant_id, session_id, run_id) DO UPDATE
    SET
        number = excluded.number, status = excluded.status, input_seq = excluded.input_seq, record = excluded.record,
        metadata = excluded.metadata, input = excluded.input, input_metadata = excluded.input_metadata,
        parent_run_id = excluded.parent_run_id
),
streamed AS (
    INSERT INTO partials (tenant_id, session_id, run_id, attempt, message, "offset", body, metadata)
    SELECT new.tenant_id, new.session_id, new.run_id, new.attempt, new.message, new."offset", new.body, new.metadata
    FROM
        unnest($73::bigint[], $74::text[], $75::text[], $76::text[], $77::bigint[], $78::bigint[], $79::bigint[], $80::text[], $81::text[])
            AS new (position, tenant_id, session_id, run_id, attempt, message, "offset", body, metadata)
    WHERE (new.position IN (SELECT applied.position FROM applied)) IS TRUE
),
ended AS (
    DELETE FROM partials AS old
    USING
        unnest($82::bigint[], $83::text[], $84::text[], $85::text[], $86::bigint[], $87::bigint[])
            AS gone (position, tenant_id, session_id, run_id, attempt, message)
    WHERE
        old.tenant_id = gone.tenant_id AND old.session_id = gone.session_id AND old.run_id = gone.run_id
        AND old.attempt = gone.attempt AND old.message = gone.message
        AND (gone.position IN (SELECT applied.position FROM applied)) IS TRUE
),
memory_put AS (
    INSERT INTO working_memory (tenant_id, session_id, body)
    SELECT new.tenant_id, new.session_id, new.body
    FROM
        unnest($88::bigint[], $89::text[], $90::text[], $91::text[]) AS new (position, tenant_id, session_id, body)
    WHERE new.body <> '' AND (new.position IN (SELECT applied.position FROM applied)) IS TRUE
    ON CONFLICT (tenant_id, session_id) DO UPDATE SET body = excluded.body
),
memory_dropped AS (
    DELETE FROM working_memory AS old
    USING
        unnest($88::bigint[], $89::text[], $90::text[], $91::text[]) AS new (position, tenant_id, session_id, body)
    WHERE
        new.body = '' AND old.tenant_id = new.tenant_id AND old.session_id = new.session_id
        AND (new.position IN (SELECT applied.position FROM applied)) IS TRUE
),
labels_put AS (
    INSERT INTO metadata (tenant_id, session_id, body)
    SELECT new.tenant_id, new.session_id, new.body
    FROM
        unnest($92::bigint[], $93::text[], $94::text[], $95::text[]) AS new (position, tenant_id, session_id, body)
    WHERE new.body <> '' AND (new.position IN (SELECT applied.position FROM applied)) IS TRUE
    ON CONFLICT (tenant_id, session_id) DO UPDATE SET body = excluded.body
),
labels_dropped AS (
    DELETE FROM metadata AS old
    USING
        unnest($92::bigint[], $93::text[], $94::text[], $95::text[]) AS new (position, tenant_id, session_id, body)
    WHERE
        new.body = '' AND old.tenant_id = new.tenant_id AND old.session_id = new.session_id
        AND (new.position IN (SELECT applied.position FROM applied)) IS TRUE
)
SELECT applied.position, (SELECT clock.now FROM clock) FROM applied;

-- Sessions that somebody else keeps changing are locked before they are loaded, in the order of their keys.
-- name: lock
SELECT 1
FROM unnest($1::text[], $2::text[]) AS want (tenant_id, session_id)
JOIN sessions AS session ON session.tenant_id = want.tenant_id AND session.session_id = want.session_id
ORDER BY session.tenant_id, session.session_id
FOR NO KEY UPDATE OF session;

-- Erasing a tombstone's rows, $3 at a time. The session's row is locked, so a row's place (ctid) holds. It is one only in
-- its own partition, where the table has some: so each statement names the session too.

-- name: tombstone
SELECT status = 'DELETED'
FROM sessions
WHERE tenant_id = $1 AND session_id = $2
FOR NO KEY UPDATE;

-- The keys go first: a retry that is still answered finds all that it was answered with.
-- name: erase_idempotency_records
DELETE FROM idempotency_records
WHERE tenant_id = $1 AND session_id = $2 AND ctid = ANY(ARRAY(
    SELECT ctid FROM idempotency_records WHERE tenant_id = $1 AND session_id = $2 ORDER BY key_hash LIMIT $3
));

-- name: erase_events
DELETE FROM events
WHERE tenant_id = $1 AND session_id = $2 AND ctid = ANY(ARRAY(
    SELECT ctid FROM events WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3
));

-- name: erase_tool_calls
DELETE FROM tool_calls
WHERE tenant_id = $1 AND session_id = $2 AND ctid = ANY(ARRAY(
    SELECT ctid FROM tool_calls WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3
));

-- name: erase_runs
DELETE FROM runs
WHERE tenant_id = $1 AND session_id = $2 AND ctid = ANY(ARRAY(
    SELECT ctid FROM runs WHERE tenant_id = $1 AND session_id = $2 ORDER BY run_id LIMIT $3
));

-- name: erase_partials
DELETE FROM partials
WHERE tenant_id = $1 AND session_id = $2 AND ctid = ANY(ARRAY(
    SELECT ctid FROM partials WHERE tenant_id = $1 AND session_id = $2 ORDER BY run_id, attempt, message, "offset" LIMIT $3
));

-- name: erase_working_memory
DELETE FROM working_memory WHERE tenant_id = $1 AND session_id = $2 AND $3::bigint > 0;

-- name: erase_metadata
DELETE FROM metadata WHERE tenant_id = $1 AND session_id = $2 AND $3::bigint > 0;

-- Settings.

-- name: setting
SELECT revision, value FROM settings WHERE name = $1;

-- name: insert_setting
INSERT INTO settings (name, revision, value) VALUES ($1, 1, $2) ON CONFLICT (name) DO NOTHING;

-- name: update_setting
UPDATE settings SET revision = revision + 1, value = $2 WHERE name = $1 AND revision = $3;

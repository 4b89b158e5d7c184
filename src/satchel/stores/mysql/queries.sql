-- Every statement on the data. A block begins at its name and is one statement. $1 and $2 are tenant_id and session_id where
-- one session is meant; statements for many take a list of rows in one place. What many statements share is written once, as a
-- part, and stands in them as {its name}. Where the planner could choose wrongly on a small table the index is named.

-- The server's clock in microseconds, at this moment and not at the statement's start. The session's time zone is UTC.
-- part: now
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))

-- part: started
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))

-- part: event
event.seq, event.version, event.kind, event.at, event.actor, event.run_id, event.refers_to, event.status, event.format,
event.outcome, event.tokens, event.streamed, event.metadata, event.body

-- part: taken_back
(
    SELECT MIN(back.seq)
    FROM retractions AS back
    WHERE back.tenant_id = $1 AND back.session_id = $2 AND back.refers_to = event.seq
)

-- part: call
call_.seq, call_.version, call_.tool, call_.arguments_hash, call_.status, call_.start_time, call_.end_time,
call_.tool_call_id, call_.run_id, call_.result_seq, call_.result_kind, call_.repeat_of, call_.step, began.body, ended.body

-- part: call_bodies
LEFT JOIN events AS began
    ON began.tenant_id = call_.tenant_id AND began.session_id = call_.session_id AND began.seq = call_.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call_.tenant_id AND ended.session_id = call_.session_id AND ended.seq = call_.result_seq

-- part: call_filter
call_.tenant_id = $1 AND call_.session_id = $2 AND call_.seq > $3 AND call_.seq < $4
AND ($5 IS NULL OR call_.run_id = $5) AND ($6 IS NULL OR call_.tool = $6) AND ($7 IS NULL OR call_.tool_call_id = $7)
AND ($8 IS NULL OR (call_.status = 'started') = $8)

-- part: run
run.run_id, run.number, run.status, run.input_seq, run.record, run.metadata, COALESCE(said.body, run.input),
run.input_metadata

-- part: run_input
LEFT JOIN events AS said
    ON said.tenant_id = run.tenant_id AND said.session_id = run.session_id AND said.seq = run.input_seq

-- part: piece
piece.run_id, piece.attempt, piece.message, piece.`offset`, piece.body, piece.metadata

-- part: listed
SELECT one.session_id, one.updated_at, one.record, metadata.body
FROM sessions AS one FORCE INDEX (sessions_listed)
LEFT JOIN metadata ON metadata.tenant_id = one.tenant_id AND metadata.session_id = one.session_id

-- part: list_filter
one.updated_at >= $3 AND one.updated_at <= $4
AND (one.updated_at < $4 OR one.session_id < $5)
AND CASE
    WHEN one.turns_at <= $7 THEN
        one.status = 'ACTIVE' AND (one.retention IS NULL OR one.retention > $7 - one.turns_at)
        AND ($6 IS NULL OR $6 = 'EXPIRED')
    ELSE $6 IS NULL OR one.status = $6
END

-- Reading one session. Each answer of the store is one snapshot: several statements are one transaction that sees one.

-- The clock, and the record if there is one.
-- name: record
SELECT {now}, (SELECT record FROM sessions WHERE tenant_id = $1 AND session_id = $2);

-- name: working_memory
SELECT body FROM working_memory WHERE tenant_id = $1 AND session_id = $2;

-- name: metadata
SELECT body FROM metadata WHERE tenant_id = $1 AND session_id = $2;

-- Pages of events: $3 < seq < $4, of run $5, $6 with those that were taken back; the last column says which were.
-- name: events_ascending
SELECT {event}, {taken_back}
FROM events AS event FORCE INDEX (PRIMARY)
WHERE
    event.tenant_id = $1 AND event.session_id = $2 AND event.seq > $3 AND event.seq < $4
    AND ($5 IS NULL OR event.run_id = $5)
    AND ($6 OR {taken_back} IS NULL)
ORDER BY event.seq
LIMIT $7;

-- name: events_descending
SELECT {event}, {taken_back}
FROM events AS event FORCE INDEX (PRIMARY)
WHERE
    event.tenant_id = $1 AND event.session_id = $2 AND event.seq > $3 AND event.seq < $4
    AND ($5 IS NULL OR event.run_id = $5)
    AND ($6 OR {taken_back} IS NULL)
ORDER BY event.seq DESC
LIMIT $7;

-- $8: of this kind.
-- name: kind_ascending
SELECT {event}, {taken_back}
FROM events AS event FORCE INDEX (events_kinds)
WHERE
    event.tenant_id = $1 AND event.session_id = $2 AND event.kind = $8 AND event.seq > $3 AND event.seq < $4
    AND ($5 IS NULL OR event.run_id = $5)
    AND ($6 OR {taken_back} IS NULL)
ORDER BY event.seq
LIMIT $7;

-- name: kind_descending
SELECT {event}, {taken_back}
FROM events AS event FORCE INDEX (events_kinds)
WHERE
    event.tenant_id = $1 AND event.session_id = $2 AND event.kind = $8 AND event.seq > $3 AND event.seq < $4
    AND ($5 IS NULL OR event.run_id = $5)
    AND ($6 OR {taken_back} IS NULL)
ORDER BY event.seq DESC
LIMIT $7;

-- Pages of tool calls: $3 < seq < $4, of run $5, tool $6, label $7; $8 open or ended; $10 (where it is) the arguments' hash.
-- name: tool_calls_ascending
SELECT {call}
FROM tool_calls AS call_ FORCE INDEX (PRIMARY)
{call_bodies}
WHERE {call_filter}
ORDER BY call_.seq
LIMIT $9;

-- name: tool_calls_descending
SELECT {call}
FROM tool_calls AS call_ FORCE INDEX (PRIMARY)
{call_bodies}
WHERE {call_filter}
ORDER BY call_.seq DESC
LIMIT $9;

-- name: equal_calls_ascending
SELECT {call}
FROM tool_calls AS call_ FORCE INDEX (tool_calls_repeated)
{call_bodies}
WHERE call_.arguments_hash = $10 AND {call_filter}
ORDER BY call_.seq
LIMIT $9;

-- name: equal_calls_descending
SELECT {call}
FROM tool_calls AS call_ FORCE INDEX (tool_calls_repeated)
{call_bodies}
WHERE call_.arguments_hash = $10 AND {call_filter}
ORDER BY call_.seq DESC
LIMIT $9;

-- Pages of runs: $3 < number < $4, of status $5, children of $7.
-- name: runs_ascending
SELECT {run}
FROM runs AS run FORCE INDEX (runs_numbered)
{run_input}
WHERE
    run.tenant_id = $1 AND run.session_id = $2 AND run.number > $3 AND run.number < $4
    AND ($5 IS NULL OR run.status = $5) AND ($7 IS NULL OR run.parent_run_id = $7)
ORDER BY run.number
LIMIT $6;

-- name: runs_descending
SELECT {run}
FROM runs AS run FORCE INDEX (runs_numbered)
{run_input}
WHERE
    run.tenant_id = $1 AND run.session_id = $2 AND run.number > $3 AND run.number < $4
    AND ($5 IS NULL OR run.status = $5) AND ($7 IS NULL OR run.parent_run_id = $7)
ORDER BY run.number DESC
LIMIT $6;

-- One run, $3, if $4 < number < $5, of status $6, child of $8.
-- name: run
SELECT {run}
FROM runs AS run FORCE INDEX (PRIMARY)
{run_input}
WHERE
    run.tenant_id = $1 AND run.session_id = $2 AND run.run_id = $3 AND run.number > $4 AND run.number < $5
    AND ($6 IS NULL OR run.status = $6) AND ($8 IS NULL OR run.parent_run_id = $8)
LIMIT $7;

-- Of one streamed message ($3, $4, $5), from the piece that holds the character at $6 on.
-- name: partial
SELECT {piece}
FROM partials AS piece
WHERE
    piece.tenant_id = $1 AND piece.session_id = $2 AND piece.run_id = $3 AND piece.attempt = $4 AND piece.message = $5
    AND piece.`offset` >= COALESCE((
        SELECT MAX(earlier.`offset`)
        FROM partials AS earlier
        WHERE
            earlier.tenant_id = $1 AND earlier.session_id = $2 AND earlier.run_id = $3 AND earlier.attempt = $4
            AND earlier.message = $5 AND earlier.`offset` <= $6
    ), 0)
ORDER BY piece.`offset`
LIMIT $7;

-- Of each session of a list the state that those who wait for it compare.
-- name: newest
SELECT
    one.tenant_id, one.session_id, one.status, one.revision,
    (SELECT MAX(event.seq) FROM events AS event WHERE event.tenant_id = one.tenant_id AND event.session_id = one.session_id)
FROM sessions AS one FORCE INDEX (PRIMARY)
WHERE (one.tenant_id, one.session_id) IN ($1);

-- Across sessions

-- name: clock
SELECT {now};

-- Lists: $1 tenant, $2 user, updated_at >= $3, (updated_at, session_id) < ($4, $5), status $6 at $7. What stands is
-- SessionRecord.status_at: ACTIVE turns EXPIRED, and both that and CLOSED are as good as DELETED past the retention.
-- name: sessions_of_user
{listed}
WHERE
    one.tenant_id = $1 AND one.listed_for = $2 AND {list_filter}
ORDER BY one.updated_at DESC, one.session_id DESC
LIMIT $8;

-- An admin's list reads the whole of the tenant's part of the index: no index by time alone is kept for it.
-- name: sessions_of_tenant
{listed}
WHERE
    one.tenant_id = $1 AND $2 IS NULL AND one.listed_for IS NOT NULL AND {list_filter}
ORDER BY one.updated_at DESC, one.session_id DESC
LIMIT $8;

-- Queues: those after ($1, $2). Two parts where there may be many, because an index is not entered by (a, b) > (x, y): the rest
-- of that tenant, and all tenants after it.
-- name: ready_for_agent
(
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (sessions_ready)
    WHERE ready_agent = $3 AND tenant_id = $1 AND session_id > $2
    ORDER BY tenant_id, session_id
    LIMIT $4
) UNION ALL (
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (sessions_ready)
    WHERE ready_agent = $3 AND tenant_id > $1
    ORDER BY tenant_id, session_id
    LIMIT $4
)
ORDER BY tenant_id, session_id
LIMIT $4;

-- name: ready
SELECT tenant_id, session_id
FROM sessions FORCE INDEX (sessions_ready)
WHERE ready_agent IS NOT NULL AND tenant_id >= $1 AND (tenant_id > $1 OR session_id > $2)
ORDER BY tenant_id, session_id
LIMIT $3;

-- $3 the wall clock and $4 the lease clock (NULL: now), which is called $5. The statement's start is one instant for all rows,
-- so that the index can be entered by it; {now} is not.
-- name: swept
SELECT due.tenant_id, due.session_id
FROM (
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (sessions_swept)
    WHERE sweep_at <= COALESCE($3, {started}) AND tenant_id >= $1 AND (tenant_id > $1 OR session_id > $2)
    UNION
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (sessions_leased)
    WHERE
        lease_clock = $5 AND lease_until <= COALESCE($4, {started}) AND tenant_id >= $1
        AND (tenant_id > $1 OR session_id > $2)
    UNION
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (sessions_leased)
    WHERE lease_clock < $5 AND tenant_id >= $1 AND (tenant_id > $1 OR session_id > $2)
    UNION
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (sessions_leased)
    WHERE lease_clock > $5 AND tenant_id >= $1 AND (tenant_id > $1 OR session_id > $2)
) AS due
ORDER BY due.tenant_id, due.session_id
LIMIT $6;

-- All sessions, in the order of their keys.
-- name: refs
(
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (PRIMARY)
    WHERE tenant_id = $1 AND session_id > $2
    ORDER BY tenant_id, session_id
    LIMIT $3
) UNION ALL (
    SELECT tenant_id, session_id
    FROM sessions FORCE INDEX (PRIMARY)
    WHERE tenant_id > $1
    ORDER BY tenant_id, session_id
    LIMIT $3
)
ORDER BY tenant_id, session_id
LIMIT $3;

-- Loading what decisions need. Each row begins with the session that it belongs to; $1 is a list of what is wanted, or the
-- values of one thing that is.

-- name: load_records
SELECT one.tenant_id, one.session_id, one.record
FROM sessions AS one FORCE INDEX (PRIMARY)
WHERE (one.tenant_id, one.session_id) IN ($1);

-- name: load_keys
SELECT kept.tenant_id, kept.session_id, kept.key_hash, kept.fingerprint, kept.answer
FROM idempotency_records AS kept FORCE INDEX (PRIMARY)
WHERE (kept.tenant_id, kept.session_id, kept.key_hash) IN ($1);

-- name: load_runs
SELECT run.tenant_id, run.session_id, {run}
FROM runs AS run FORCE INDEX (PRIMARY)
{run_input}
WHERE (run.tenant_id, run.session_id, run.run_id) IN ($1);

-- name: load_calls
SELECT call_.tenant_id, call_.session_id, {call}
FROM tool_calls AS call_ FORCE INDEX (PRIMARY)
{call_bodies}
WHERE (call_.tenant_id, call_.session_id, call_.seq) IN ($1);

-- name: load_equal
SELECT tenant_id, session_id, arguments_hash, seq
FROM tool_calls FORCE INDEX (tool_calls_repeated)
WHERE tenant_id = $1 AND session_id = $2 AND arguments_hash = $3
ORDER BY seq DESC
LIMIT 1;

-- name: load_step
SELECT call_.tenant_id, call_.session_id, {call}
FROM tool_calls AS call_ FORCE INDEX (tool_calls_steps)
{call_bodies}
WHERE call_.tenant_id = $1 AND call_.session_id = $2 AND call_.run_id = $3 AND call_.step = $4
ORDER BY call_.seq DESC
LIMIT 1;

-- name: load_events
SELECT event.tenant_id, event.session_id, {event}
FROM events AS event FORCE INDEX (PRIMARY)
WHERE (event.tenant_id, event.session_id, event.seq) IN ($1);

-- What takes these messages back.
-- name: load_retractions
SELECT event.tenant_id, event.session_id, {event}
FROM retractions AS back FORCE INDEX (PRIMARY)
JOIN events AS event
    ON event.tenant_id = back.tenant_id AND event.session_id = back.session_id AND event.seq = back.seq
WHERE (back.tenant_id, back.session_id, back.refers_to) IN ($1);

-- name: load_pieces
SELECT piece.tenant_id, piece.session_id, {piece}
FROM partials AS piece FORCE INDEX (PRIMARY)
WHERE (piece.tenant_id, piece.session_id, piece.run_id, piece.attempt, piece.message) IN ($1);

-- name: load_working_memory
SELECT tenant_id, session_id, body FROM working_memory FORCE INDEX (PRIMARY) WHERE (tenant_id, session_id) IN ($1);

-- name: load_metadata
SELECT tenant_id, session_id, body FROM metadata FORCE INDEX (PRIMARY) WHERE (tenant_id, session_id) IN ($1);

-- Writing changes. First the sessions' rows are locked, in the order of their keys, which is the order of the index; then it is
-- looked for keys that must not be there, and at the clock. What may be applied is written in the same transaction.

-- name: lock
SELECT tenant_id, session_id, revision
FROM sessions FORCE INDEX (PRIMARY)
WHERE (tenant_id, session_id) IN ($1)
ORDER BY tenant_id, session_id
FOR UPDATE;

-- name: find_keys
SELECT tenant_id, session_id
FROM idempotency_records FORCE INDEX (PRIMARY)
WHERE (tenant_id, session_id, key_hash) IN ($1);

-- A session that is new, and one that is locked: then all its columns are written, and of its index entries what changed.
-- name: insert_sessions
INSERT INTO sessions (
    tenant_id, session_id, user_id, listed_for, status, updated_at, turns_at, retention, revision, ready_agent, sweep_at,
    lease_until, lease_clock, record
) VALUES $1;

-- name: replace_sessions
REPLACE INTO sessions (
    tenant_id, session_id, user_id, listed_for, status, updated_at, turns_at, retention, revision, ready_agent, sweep_at,
    lease_until, lease_clock, record
) VALUES $1;

-- name: insert_keys
INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer) VALUES $1;

-- name: insert_events
INSERT INTO events (
    tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed,
    metadata, body
) VALUES $1;

-- name: insert_retractions
INSERT INTO retractions (tenant_id, session_id, refers_to, seq) VALUES $1;

-- name: replace_tool_calls
REPLACE INTO tool_calls (
    tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, tool_call_id, run_id,
    result_seq, result_kind, repeat_of, step
) VALUES $1;

-- name: replace_runs
REPLACE INTO runs (
    tenant_id, session_id, run_id, number, status, input_seq, record, metadata, input, input_metadata, parent_run_id
) VALUES $1;

-- name: drop_partials
DELETE FROM partials
WHERE tenant_id = $1 AND session_id = $2 AND run_id = $3 AND attempt = $4 AND message = $5;

-- name: insert_partials
INSERT INTO partials (tenant_id, session_id, run_id, attempt, message, `offset`, body, metadata) VALUES $1;

-- name: replace_working_memory
REPLACE INTO working_memory (tenant_id, session_id, body) VALUES $1;

-- name: drop_working_memory
DELETE FROM working_memory WHERE tenant_id = $1 AND session_id = $2;

-- name: replace_metadata
REPLACE INTO metadata (tenant_id, session_id, body) VALUES $1;

-- name: drop_metadata
DELETE FROM metadata WHERE tenant_id = $1 AND session_id = $2;

-- Erasing a tombstone's rows, $3 at a time.

-- name: tombstone
SELECT status = 'DELETED' FROM sessions WHERE tenant_id = $1 AND session_id = $2 FOR UPDATE;

-- Each of these belongs to an event, so they are gone when the events are, and are not counted.
-- name: forget_retractions
DELETE FROM retractions WHERE tenant_id = $1 AND session_id = $2 ORDER BY refers_to, seq LIMIT $3;

-- The keys go first: a retry that is still answered finds all that it was answered with.
-- name: erase_idempotency_records
DELETE FROM idempotency_records WHERE tenant_id = $1 AND session_id = $2 ORDER BY key_hash LIMIT $3;

-- name: erase_events
DELETE FROM events WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3;

-- name: erase_tool_calls
DELETE FROM tool_calls WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq LIMIT $3;

-- name: erase_runs
DELETE FROM runs WHERE tenant_id = $1 AND session_id = $2 ORDER BY run_id LIMIT $3;

-- name: erase_partials
DELETE FROM partials WHERE tenant_id = $1 AND session_id = $2 ORDER BY run_id, attempt, message, `offset` LIMIT $3;

-- name: erase_working_memory
DELETE FROM working_memory WHERE tenant_id = $1 AND session_id = $2 LIMIT $3;

-- name: erase_metadata
DELETE FROM metadata WHERE tenant_id = $1 AND session_id = $2 LIMIT $3;

-- Settings.

-- name: setting
SELECT revision, value FROM settings WHERE name = $1;

-- Whoever finds it there changes nothing.
-- name: insert_setting
INSERT INTO settings (name, revision, value) VALUES ($1, 1, $2) ON DUPLICATE KEY UPDATE revision = revision;

-- name: update_setting
UPDATE settings SET revision = revision + 1, value = $2 WHERE name = $1 AND revision = $3;

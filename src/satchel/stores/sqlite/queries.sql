-- Every statement on the data. A block begins at its name and is one statement; paste it into the sqlite3 shell and give the
-- parameters with `.parameter set ?1 "'acme'"`. ?1 and ?2 are always tenant_id and session_id, except in lists.
-- Texts of JSON are handed over as bytes, to be stored as they are: hence the casts.

-- Loading what decisions need

-- name: record
SELECT record FROM sessions WHERE tenant_id = ?1 AND session_id = ?2;

-- name: revision
SELECT revision, status FROM sessions WHERE tenant_id = ?1 AND session_id = ?2;

-- name: working_memory
SELECT body FROM working_memory WHERE tenant_id = ?1 AND session_id = ?2;

-- name: metadata
SELECT body FROM metadata WHERE tenant_id = ?1 AND session_id = ?2;

-- name: idempotency_record
SELECT fingerprint, answer FROM idempotency_records WHERE tenant_id = ?1 AND session_id = ?2 AND key_hash = ?3;

-- name: idempotency_records
SELECT fingerprint, answer, key_hash
FROM idempotency_records
WHERE
    tenant_id = ?1 AND session_id = ?2
    AND key_hash IN (?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18);

-- name: run
SELECT
    run.run_id, run.number, run.status, run.input_seq, run.record, run.metadata, coalesce(said.body, run.input),
    run.input_metadata
FROM runs AS run
LEFT JOIN events AS said
    ON said.tenant_id = run.tenant_id AND said.session_id = run.session_id AND said.seq = run.input_seq
WHERE run.tenant_id = ?1 AND run.session_id = ?2 AND run.run_id = ?3;

-- name: tool_call
SELECT
    call.seq, call.version, call.tool, call.arguments_hash, call.status, call.start_time, call.end_time,
    call.tool_call_id, call.run_id, call.result_seq, call.result_kind, call.repeat_of, call.step, began.body, ended.body
FROM tool_calls AS call
LEFT JOIN events AS began
    ON began.tenant_id = call.tenant_id AND began.session_id = call.session_id AND began.seq = call.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call.tenant_id AND ended.session_id = call.session_id AND ended.seq = call.result_seq
WHERE call.tenant_id = ?1 AND call.session_id = ?2 AND call.seq = ?3;

-- name: newest_equal_call
SELECT seq
FROM tool_calls INDEXED BY tool_calls_repeated
WHERE tenant_id = ?1 AND session_id = ?2 AND arguments_hash = ?3
ORDER BY seq DESC
LIMIT 1;

-- name: newest_call_of_step
SELECT seq
FROM tool_calls INDEXED BY tool_calls_steps
WHERE tenant_id = ?1 AND session_id = ?2 AND run_id = ?3 AND step = ?4
ORDER BY seq DESC
LIMIT 1;

-- name: event
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body
FROM events
WHERE tenant_id = ?1 AND session_id = ?2 AND seq = ?3;

-- name: retractions
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body
FROM events INDEXED BY events_retractions
WHERE tenant_id = ?1 AND session_id = ?2 AND refers_to = ?3 AND kind = 'message_retracted';

-- Writing a change

-- name: insert_session
INSERT INTO sessions (
    tenant_id, session_id, user_id, status, hidden, updated_at, turns_at, retention, revision, ready_agent, sweep_at,
    lease_until, lease_clock, record
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, CAST(?14 AS TEXT));

-- The narrow one touches one index, the wide one all of them. The old revision was compared in the same transaction.
-- name: update_session
UPDATE sessions
SET updated_at = ?3, turns_at = ?4, revision = ?5, record = CAST(?6 AS TEXT)
WHERE tenant_id = ?1 AND session_id = ?2;

-- name: update_session_widely
UPDATE sessions
SET
    user_id = ?3, status = ?4, hidden = ?5, updated_at = ?6, turns_at = ?7, retention = ?8, revision = ?9,
    ready_agent = ?10, sweep_at = ?11, lease_until = ?12, lease_clock = ?13, record = CAST(?14 AS TEXT)
WHERE tenant_id = ?1 AND session_id = ?2;

-- name: insert_event
INSERT INTO events (
    tenant_id, session_id, seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed,
    metadata, body
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, CAST(?15 AS TEXT), CAST(?16 AS TEXT)
);

-- name: insert_plain_event
-- An event of which nothing is said beside its body; run_id is '' where there is none.
INSERT INTO events (tenant_id, session_id, seq, version, kind, at, actor, run_id, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, ''), CAST(?9 AS TEXT));

-- name: insert_idempotency_record
INSERT INTO idempotency_records (tenant_id, session_id, key_hash, fingerprint, answer)
VALUES (?1, ?2, ?3, ?4, CAST(?5 AS TEXT));

-- name: put_tool_call
INSERT INTO tool_calls (
    tenant_id, session_id, seq, version, tool, arguments_hash, status, start_time, end_time, tool_call_id, run_id,
    result_seq, result_kind, repeat_of, step
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
ON CONFLICT (tenant_id, session_id, seq) DO UPDATE
SET
    version = excluded.version, tool = excluded.tool, arguments_hash = excluded.arguments_hash,
    status = excluded.status, start_time = excluded.start_time, end_time = excluded.end_time,
    tool_call_id = excluded.tool_call_id, run_id = excluded.run_id, result_seq = excluded.result_seq,
    result_kind = excluded.result_kind, repeat_of = excluded.repeat_of, step = excluded.step;

-- name: put_run
INSERT INTO runs (
    tenant_id, session_id, run_id, number, status, input_seq, record, metadata, input, input_metadata, parent_run_id
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, CAST(?7 AS TEXT), CAST(?8 AS TEXT), CAST(?9 AS TEXT), CAST(?10 AS TEXT), ?11
)
ON CONFLICT (tenant_id, session_id, run_id) DO UPDATE
SET
    number = excluded.number, status = excluded.status, input_seq = excluded.input_seq, record = excluded.record,
    metadata = excluded.metadata, input = excluded.input, input_metadata = excluded.input_metadata,
    parent_run_id = excluded.parent_run_id;

-- name: drop_partials
DELETE FROM partials
WHERE tenant_id = ?1 AND session_id = ?2 AND run_id = ?3 AND attempt = ?4 AND message = ?5;

-- name: insert_partial
INSERT INTO partials (tenant_id, session_id, run_id, attempt, message, "offset", body, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, CAST(?7 AS TEXT), CAST(?8 AS TEXT));

-- name: put_working_memory
INSERT INTO working_memory (tenant_id, session_id, body) VALUES (?1, ?2, CAST(?3 AS TEXT))
ON CONFLICT (tenant_id, session_id) DO UPDATE SET body = excluded.body;

-- name: drop_working_memory
DELETE FROM working_memory WHERE tenant_id = ?1 AND session_id = ?2;

-- name: put_metadata
INSERT INTO metadata (tenant_id, session_id, body) VALUES (?1, ?2, CAST(?3 AS TEXT))
ON CONFLICT (tenant_id, session_id) DO UPDATE SET body = excluded.body;

-- name: drop_metadata
DELETE FROM metadata WHERE tenant_id = ?1 AND session_id = ?2;

-- Reading one session

-- name: newest_messages
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body
FROM events INDEXED BY events_messages
WHERE
    tenant_id = ?1 AND session_id = ?2 AND kind = 'message'
    AND NOT EXISTS (
        SELECT 1
        FROM events AS back INDEXED BY events_retractions
        WHERE
            back.tenant_id = ?1 AND back.session_id = ?2 AND back.refers_to = events.seq
            AND back.kind = 'message_retracted'
    )
ORDER BY seq DESC
LIMIT ?3;

-- Pages of events: ?3 < seq < ?4, of run ?5, ?6 = 1 with those that were taken back; the last column says which were.
-- name: messages_ascending
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body,
    EXISTS (
        SELECT 1
        FROM events AS back INDEXED BY events_retractions
        WHERE
            back.tenant_id = ?1 AND back.session_id = ?2 AND back.refers_to = events.seq
            AND back.kind = 'message_retracted'
    ) AS is_retracted
FROM events INDEXED BY events_messages
WHERE
    tenant_id = ?1 AND session_id = ?2 AND kind = 'message' AND seq > ?3 AND seq < ?4
    AND (?5 IS NULL OR run_id = ?5) AND (?6 OR NOT is_retracted)
ORDER BY seq
LIMIT ?7;

-- name: messages_descending
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body,
    EXISTS (
        SELECT 1
        FROM events AS back INDEXED BY events_retractions
        WHERE
            back.tenant_id = ?1 AND back.session_id = ?2 AND back.refers_to = events.seq
            AND back.kind = 'message_retracted'
    ) AS is_retracted
FROM events INDEXED BY events_messages
WHERE
    tenant_id = ?1 AND session_id = ?2 AND kind = 'message' AND seq > ?3 AND seq < ?4
    AND (?5 IS NULL OR run_id = ?5) AND (?6 OR NOT is_retracted)
ORDER BY seq DESC
LIMIT ?7;

-- ?8: of this kind, or of any.
-- name: events_ascending
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body,
    EXISTS (
        SELECT 1
        FROM events AS back INDEXED BY events_retractions
        WHERE
            back.tenant_id = ?1 AND back.session_id = ?2 AND back.refers_to = events.seq
            AND back.kind = 'message_retracted'
    ) AS is_retracted
FROM events
WHERE
    tenant_id = ?1 AND session_id = ?2 AND seq > ?3 AND seq < ?4
    AND (?5 IS NULL OR run_id = ?5) AND (?6 OR NOT is_retracted) AND (?8 IS NULL OR kind = ?8)
ORDER BY seq
LIMIT ?7;

-- name: events_descending
SELECT
    seq, version, kind, at, actor, run_id, refers_to, status, format, outcome, tokens, streamed, metadata, body,
    EXISTS (
        SELECT 1
        FROM events AS back INDEXED BY events_retractions
        WHERE
            back.tenant_id = ?1 AND back.session_id = ?2 AND back.refers_to = events.seq
            AND back.kind = 'message_retracted'
    ) AS is_retracted
FROM events
WHERE
    tenant_id = ?1 AND session_id = ?2 AND seq > ?3 AND seq < ?4
    AND (?5 IS NULL OR run_id = ?5) AND (?6 OR NOT is_retracted) AND (?8 IS NULL OR kind = ?8)
ORDER BY seq DESC
LIMIT ?7;

-- Pages of tool calls: ?3 < seq < ?4, of run ?5, tool ?6, label ?7; ?8 = 1 open, 0 ended; ?10 (where it is) the arguments' hash.
-- name: tool_calls_ascending
SELECT
    call.seq, call.version, call.tool, call.arguments_hash, call.status, call.start_time, call.end_time,
    call.tool_call_id, call.run_id, call.result_seq, call.result_kind, call.repeat_of, call.step, began.body, ended.body
FROM tool_calls AS call
LEFT JOIN events AS began
    ON began.tenant_id = call.tenant_id AND began.session_id = call.session_id AND began.seq = call.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call.tenant_id AND ended.session_id = call.session_id AND ended.seq = call.result_seq
WHERE
    call.tenant_id = ?1 AND call.session_id = ?2 AND call.seq > ?3 AND call.seq < ?4
    AND (?5 IS NULL OR call.run_id = ?5) AND (?6 IS NULL OR call.tool = ?6)
    AND (?7 IS NULL OR call.tool_call_id = ?7) AND (?8 IS NULL OR (call.status = 'started') = ?8)
ORDER BY call.seq
LIMIT ?9;

-- name: tool_calls_descending
SELECT
    call.seq, call.version, call.tool, call.arguments_hash, call.status, call.start_time, call.end_time,
    call.tool_call_id, call.run_id, call.result_seq, call.result_kind, call.repeat_of, call.step, began.body, ended.body
FROM tool_calls AS call
LEFT JOIN events AS began
    ON began.tenant_id = call.tenant_id AND began.session_id = call.session_id AND began.seq = call.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call.tenant_id AND ended.session_id = call.session_id AND ended.seq = call.result_seq
WHERE
    call.tenant_id = ?1 AND call.session_id = ?2 AND call.seq > ?3 AND call.seq < ?4
    AND (?5 IS NULL OR call.run_id = ?5) AND (?6 IS NULL OR call.tool = ?6)
    AND (?7 IS NULL OR call.tool_call_id = ?7) AND (?8 IS NULL OR (call.status = 'started') = ?8)
ORDER BY call.seq DESC
LIMIT ?9;

-- name: equal_calls_ascending
SELECT
    call.seq, call.version, call.tool, call.arguments_hash, call.status, call.start_time, call.end_time,
    call.tool_call_id, call.run_id, call.result_seq, call.result_kind, call.repeat_of, call.step, began.body, ended.body
FROM tool_calls AS call INDEXED BY tool_calls_repeated
LEFT JOIN events AS began
    ON began.tenant_id = call.tenant_id AND began.session_id = call.session_id AND began.seq = call.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call.tenant_id AND ended.session_id = call.session_id AND ended.seq = call.result_seq
WHERE
    call.tenant_id = ?1 AND call.session_id = ?2 AND call.seq > ?3 AND call.seq < ?4
    AND (?5 IS NULL OR call.run_id = ?5) AND (?6 IS NULL OR call.tool = ?6)
    AND (?7 IS NULL OR call.tool_call_id = ?7) AND (?8 IS NULL OR (call.status = 'started') = ?8)
    AND call.arguments_hash = ?10
ORDER BY call.seq
LIMIT ?9;

-- name: equal_calls_descending
SELECT
    call.seq, call.version, call.tool, call.arguments_hash, call.status, call.start_time, call.end_time,
    call.tool_call_id, call.run_id, call.result_seq, call.result_kind, call.repeat_of, call.step, began.body, ended.body
FROM tool_calls AS call INDEXED BY tool_calls_repeated
LEFT JOIN events AS began
    ON began.tenant_id = call.tenant_id AND began.session_id = call.session_id AND began.seq = call.seq
LEFT JOIN events AS ended
    ON ended.tenant_id = call.tenant_id AND ended.session_id = call.session_id AND ended.seq = call.result_seq
WHERE
    call.tenant_id = ?1 AND call.session_id = ?2 AND call.seq > ?3 AND call.seq < ?4
    AND (?5 IS NULL OR call.run_id = ?5) AND (?6 IS NULL OR call.tool = ?6)
    AND (?7 IS NULL OR call.tool_call_id = ?7) AND (?8 IS NULL OR (call.status = 'started') = ?8)
    AND call.arguments_hash = ?10
ORDER BY call.seq DESC
LIMIT ?9;

-- Pages of runs: ?3 < number < ?4, of status ?5, children of ?7.
-- name: runs_ascending
SELECT
    run.run_id, run.number, run.status, run.input_seq, run.record, run.metadata, coalesce(said.body, run.input),
    run.input_metadata
FROM runs AS run INDEXED BY runs_numbered
LEFT JOIN events AS said
    ON said.tenant_id = run.tenant_id AND said.session_id = run.session_id AND said.seq = run.input_seq
WHERE
    run.tenant_id = ?1 AND run.session_id = ?2 AND run.number > ?3 AND run.number < ?4
    AND (?5 IS NULL OR run.status = ?5) AND (?7 IS NULL OR run.parent_run_id = ?7)
ORDER BY run.number
LIMIT ?6;

-- name: runs_descending
SELECT
    run.run_id, run.number, run.status, run.input_seq, run.record, run.metadata, coalesce(said.body, run.input),
    run.input_metadata
FROM runs AS run INDEXED BY runs_numbered
LEFT JOIN events AS said
    ON said.tenant_id = run.tenant_id AND said.session_id = run.session_id AND said.seq = run.input_seq
WHERE
    run.tenant_id = ?1 AND run.session_id = ?2 AND run.number > ?3 AND run.number < ?4
    AND (?5 IS NULL OR run.status = ?5) AND (?7 IS NULL OR run.parent_run_id = ?7)
ORDER BY run.number DESC
LIMIT ?6;

-- Of one streamed message, from the piece that holds the character at ?6 on.
-- name: partial
SELECT "offset", body, metadata
FROM partials
WHERE
    tenant_id = ?1 AND session_id = ?2 AND run_id = ?3 AND attempt = ?4 AND message = ?5
    AND "offset" >= coalesce((
        SELECT max("offset")
        FROM partials
        WHERE
            tenant_id = ?1 AND session_id = ?2 AND run_id = ?3 AND attempt = ?4 AND message = ?5 AND "offset" <= ?6
    ), 0)
ORDER BY "offset"
LIMIT ?7;

-- The newest seq of a session that is there (0 without an event), and its revision.
-- For those who wait: a tombstone is after every event, so that they hear of the end.
-- name: newest
SELECT CASE WHEN status = 'DELETED' THEN 9223372036854775807 ELSE coalesce((
    SELECT seq
    FROM events
    WHERE tenant_id = ?1 AND session_id = ?2
    ORDER BY seq DESC
    LIMIT 1
), 0) END, revision
FROM sessions
WHERE tenant_id = ?1 AND session_id = ?2;

-- Across sessions

-- Lists: ?1 tenant, ?2 user, updated_at >= ?3, (updated_at, session_id) < (?4, ?5), status ?6 at ?7. standing is
-- SessionRecord.status_at: ACTIVE turns EXPIRED, and both that and CLOSED are as good as DELETED past the retention.
-- name: sessions_of_user
SELECT page.session_id, page.updated_at, one.record, metadata.body
FROM (
    SELECT
        tenant_id, session_id, updated_at,
        iif(
            turns_at <= ?7,
            iif(status = 'ACTIVE' AND (turns_at + retention <= ?7) IS NOT TRUE, 'EXPIRED', 'DELETED'),
            status
        ) AS standing
    FROM sessions INDEXED BY sessions_listed
    WHERE
        tenant_id = ?1 AND user_id = ?2 AND hidden = 0 AND status <> 'DELETED'
        AND updated_at >= ?3 AND updated_at <= ?4 AND (updated_at, session_id) < (?4, ?5 || '')
        AND standing <> 'DELETED' AND (?6 IS NULL OR ?6 = standing)
    ORDER BY updated_at DESC, session_id DESC
    LIMIT ?8
) AS page
CROSS JOIN sessions AS one ON one.tenant_id = page.tenant_id AND one.session_id = page.session_id
LEFT JOIN metadata ON metadata.tenant_id = page.tenant_id AND metadata.session_id = page.session_id
ORDER BY page.updated_at DESC, page.session_id DESC;

-- An admin's list reads the whole of the tenant's part of the index: no index by time alone is kept for it.
-- name: sessions_of_tenant
SELECT page.session_id, page.updated_at, one.record, metadata.body
FROM (
    SELECT
        tenant_id, session_id, updated_at,
        iif(
            turns_at <= ?7,
            iif(status = 'ACTIVE' AND (turns_at + retention <= ?7) IS NOT TRUE, 'EXPIRED', 'DELETED'),
            status
        ) AS standing
    FROM sessions INDEXED BY sessions_listed
    WHERE
        tenant_id = ?1 AND ?2 IS NULL AND hidden = 0 AND status <> 'DELETED'
        AND updated_at >= ?3 AND (updated_at, session_id) < (?4, ?5 || '')
        AND standing <> 'DELETED' AND (?6 IS NULL OR ?6 = standing)
    ORDER BY updated_at DESC, session_id DESC
    LIMIT ?8
) AS page
CROSS JOIN sessions AS one ON one.tenant_id = page.tenant_id AND one.session_id = page.session_id
LEFT JOIN metadata ON metadata.tenant_id = page.tenant_id AND metadata.session_id = page.session_id
ORDER BY page.updated_at DESC, page.session_id DESC;

-- Queues: those after (?1, ?2), which are bytes (|| '' makes them text): a key that is no text any more hides none behind it.
-- name: ready_for_agent
SELECT tenant_id, session_id
FROM sessions INDEXED BY sessions_ready
WHERE ready_agent = ?3 AND (tenant_id, session_id) > (?1 || '', ?2 || '')
ORDER BY tenant_id, session_id
LIMIT ?4;

-- name: ready
SELECT tenant_id, session_id
FROM sessions INDEXED BY sessions_ready
WHERE ready_agent IS NOT NULL AND (tenant_id, session_id) > (?1 || '', ?2 || '')
ORDER BY tenant_id, session_id
LIMIT ?3;

-- name: swept
SELECT tenant_id, session_id
FROM (
    SELECT tenant_id, session_id
    FROM sessions INDEXED BY sessions_swept
    WHERE sweep_at <= ?3 AND (tenant_id, session_id) > (?1 || '', ?2 || '')
    UNION
    SELECT tenant_id, session_id
    FROM sessions INDEXED BY sessions_leased
    WHERE
        lease_until IS NOT NULL AND (lease_until <= ?4 OR lease_clock IS NOT ?5)
        AND (tenant_id, session_id) > (?1 || '', ?2 || '')
)
ORDER BY tenant_id, session_id
LIMIT ?6;

-- All sessions, in the order of their keys.
-- name: refs
SELECT tenant_id, session_id
FROM sessions
WHERE (tenant_id, session_id) > (?1 || '', ?2 || '')
ORDER BY tenant_id, session_id
LIMIT ?3;

-- Erasing a tombstone's rows, ?3 at a time

-- The keys go first: a retry that is still answered finds all that it was answered with.
-- name: erase_idempotency_records
DELETE FROM idempotency_records
WHERE tenant_id = ?1 AND session_id = ?2 AND key_hash IN (
    SELECT key_hash FROM idempotency_records WHERE tenant_id = ?1 AND session_id = ?2 LIMIT ?3
);

-- name: erase_events
DELETE FROM events
WHERE tenant_id = ?1 AND session_id = ?2 AND seq IN (
    SELECT seq FROM events WHERE tenant_id = ?1 AND session_id = ?2 LIMIT ?3
);

-- name: erase_tool_calls
DELETE FROM tool_calls
WHERE tenant_id = ?1 AND session_id = ?2 AND seq IN (
    SELECT seq FROM tool_calls WHERE tenant_id = ?1 AND session_id = ?2 LIMIT ?3
);

-- name: erase_runs
DELETE FROM runs
WHERE tenant_id = ?1 AND session_id = ?2 AND run_id IN (
    SELECT run_id FROM runs WHERE tenant_id = ?1 AND session_id = ?2 LIMIT ?3
);

-- name: erase_partials
DELETE FROM partials
WHERE tenant_id = ?1 AND session_id = ?2 AND (run_id, attempt, message, "offset") IN (
    SELECT run_id, attempt, message, "offset" FROM partials WHERE tenant_id = ?1 AND session_id = ?2 LIMIT ?3
);

-- name: erase_working_memory
DELETE FROM working_memory WHERE tenant_id = ?1 AND session_id = ?2 AND ?3 > 0;

-- name: erase_metadata
DELETE FROM metadata WHERE tenant_id = ?1 AND session_id = ?2 AND ?3 > 0;

-- name: mark_erasure
INSERT INTO erasures (tenant_id, session_id, mark) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant_id, session_id) DO UPDATE SET mark = excluded.mark;

-- name: erasures
SELECT tenant_id, session_id, mark FROM erasures;

-- name: end_erasure
DELETE FROM erasures WHERE tenant_id = ?1 AND session_id = ?2 AND mark = ?3;

-- Beside all sessions

-- name: setting
SELECT revision, value FROM settings WHERE name = ?1;

-- name: insert_setting
INSERT INTO settings (name, revision, value) VALUES (?1, 1, CAST(?2 AS TEXT)) ON CONFLICT (name) DO NOTHING;

-- name: update_setting
UPDATE settings SET revision = revision + 1, value = CAST(?2 AS TEXT) WHERE name = ?1 AND revision = ?3;

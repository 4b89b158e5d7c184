-- Creates all tables; there is no older code that could meet them.
--
-- Ids compare byte by byte: every text column has the collation "C". Bodies are JSON text, as they were given; jsonb would
-- change them, and refuses NUL characters. An index holds key columns and updated_at, and of what looks after sessions only
-- what is not NULL: whatever changes none of them is a HOT update.

CREATE TABLE sessions (
    tenant_id   text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    hidden      boolean          NOT NULL,
    updated_at  bigint           NOT NULL,
    turns_at    bigint,
    retention   bigint,
    revision    bigint           NOT NULL,
    ready_agent text COLLATE "C",
    sweep_at    bigint,
    lease_until bigint,
    lease_clock text COLLATE "C",
    record      text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX sessions_listed ON sessions (tenant_id, user_id, updated_at, session_id)
    WHERE NOT hidden AND status <> 'DELETED';

CREATE INDEX sessions_ready ON sessions (ready_agent, tenant_id, session_id) WHERE ready_agent IS NOT NULL;

CREATE INDEX sessions_swept ON sessions (sweep_at, tenant_id, session_id) WHERE sweep_at IS NOT NULL;

CREATE INDEX sessions_leased ON sessions (lease_clock, lease_until, tenant_id, session_id)
    WHERE lease_until IS NOT NULL;

CREATE TABLE working_memory (
    tenant_id  text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    body       text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
);

CREATE TABLE metadata (
    tenant_id  text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    body       text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
);

-- status is NULL for complete, format for openai.chat: what nearly all rows have takes no room.
CREATE TABLE events (
    tenant_id  text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq        bigint           NOT NULL,
    version    bigint           NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    at         bigint           NOT NULL,
    actor      text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C",
    refers_to  bigint,
    status     text COLLATE "C",
    format     text COLLATE "C",
    outcome    text COLLATE "C",
    tokens     bigint,
    streamed   bigint,
    metadata   text COLLATE "C",
    body       text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, session_id, seq)
);

CREATE INDEX events_messages ON events (tenant_id, session_id, seq) WHERE kind = 'message';

CREATE INDEX events_retractions ON events (tenant_id, session_id, refers_to) WHERE kind = 'message_retracted';

CREATE TABLE tool_calls (
    tenant_id      text COLLATE "C" NOT NULL,
    session_id     text COLLATE "C" NOT NULL,
    seq            bigint           NOT NULL,
    version        bigint           NOT NULL,
    tool           text COLLATE "C" NOT NULL,
    arguments_hash bytea            NOT NULL,
    status         text COLLATE "C" NOT NULL,
    start_time     bigint           NOT NULL,
    end_time       bigint,
    tool_call_id   text COLLATE "C",
    run_id         text COLLATE "C",
    result_seq     bigint,
    result_kind    text COLLATE "C" NOT NULL,
    repeat_of      bigint,
    step           text COLLATE "C",
    PRIMARY KEY (tenant_id, session_id, seq)
) WITH (fillfactor = 80);

CREATE INDEX tool_calls_repeated ON tool_calls (tenant_id, session_id, arguments_hash, seq);

-- Calls that a run named: each attempt asks whether there is an outcome.
CREATE INDEX tool_calls_steps ON tool_calls (tenant_id, session_id, run_id, step, seq) WHERE step IS NOT NULL;

-- record: the run as JSON, without the three texts that stand beside it. input is NULL once it is a message (input_seq).
CREATE TABLE runs (
    tenant_id      text COLLATE "C" NOT NULL,
    session_id     text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    number         bigint           NOT NULL,
    status         text COLLATE "C" NOT NULL,
    input_seq      bigint,
    record         text COLLATE "C" NOT NULL,
    metadata       text COLLATE "C",
    input          text COLLATE "C",
    input_metadata text COLLATE "C",
    parent_run_id  text COLLATE "C",
    PRIMARY KEY (tenant_id, session_id, run_id)
) WITH (fillfactor = 80);

CREATE INDEX runs_numbered ON runs (tenant_id, session_id, number);

-- Text that streams and is not final: body is JSON. The first piece has the message's metadata.
CREATE TABLE partials (
    tenant_id  text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    attempt    bigint           NOT NULL,
    message    bigint           NOT NULL,
    "offset"   bigint           NOT NULL,
    body       text COLLATE "C" NOT NULL,
    metadata   text COLLATE "C",
    PRIMARY KEY (tenant_id, session_id, run_id, attempt, message, "offset")
);

CREATE TABLE idempotency_records (
    tenant_id   text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    key_hash    bytea            NOT NULL,
    fingerprint bytea            NOT NULL,
    answer      text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, session_id, key_hash)
);

-- Of the whole store, not of a session: api keys and the like.
CREATE TABLE settings (
    name     text COLLATE "C" NOT NULL PRIMARY KEY,
    revision bigint           NOT NULL,
    value    text COLLATE "C" NOT NULL
);

-- Creates all tables; there is no older code that could meet them. Each statement may be repeated: a step that was cut off is
-- run again from its start.
--
-- Ids are VARBINARY and compare byte by byte, spaces at the end included. Bodies are JSON text as it was given, in LONGBLOB: up
-- to 4 MiB and more, and no character set has a say. There are no partial indexes here, so what they would leave out has
-- a column that is NULL (sessions.listed_for) or a table of its own (retractions).

-- listed_for: the user in whose list the session stands; NULL for a hidden one and a tombstone.
CREATE TABLE IF NOT EXISTS sessions (
    tenant_id   VARBINARY(255) NOT NULL,
    session_id  VARBINARY(255) NOT NULL,
    user_id     VARBINARY(255) NOT NULL,
    listed_for  VARBINARY(255),
    status      VARBINARY(16)  NOT NULL,
    updated_at  BIGINT         NOT NULL,
    turns_at    BIGINT,
    retention   BIGINT,
    revision    BIGINT         NOT NULL,
    ready_agent VARBINARY(255),
    sweep_at    BIGINT,
    lease_until BIGINT,
    lease_clock VARBINARY(255),
    record      LONGBLOB       NOT NULL,
    PRIMARY KEY (tenant_id, session_id),
    KEY sessions_listed (tenant_id, listed_for, updated_at, session_id),
    KEY sessions_ready (ready_agent, tenant_id, session_id),
    KEY sessions_swept (sweep_at, tenant_id, session_id),
    KEY sessions_leased (lease_clock, lease_until, tenant_id, session_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

CREATE TABLE IF NOT EXISTS working_memory (
    tenant_id  VARBINARY(255) NOT NULL,
    session_id VARBINARY(255) NOT NULL,
    body       LONGBLOB       NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

CREATE TABLE IF NOT EXISTS metadata (
    tenant_id  VARBINARY(255) NOT NULL,
    session_id VARBINARY(255) NOT NULL,
    body       LONGBLOB       NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

-- status is NULL for complete, format for openai.chat: what nearly all rows have takes no room.
CREATE TABLE IF NOT EXISTS events (
    tenant_id  VARBINARY(255) NOT NULL,
    session_id VARBINARY(255) NOT NULL,
    seq        BIGINT         NOT NULL,
    version    BIGINT         NOT NULL,
    kind       VARBINARY(64)  NOT NULL,
    at         BIGINT         NOT NULL,
    actor      VARBINARY(1024) NOT NULL,
    run_id     VARBINARY(255),
    refers_to  BIGINT,
    status     VARBINARY(64),
    format     VARBINARY(255),
    outcome    VARBINARY(64),
    tokens     BIGINT,
    streamed   BIGINT,
    metadata   LONGBLOB,
    body       LONGBLOB       NOT NULL,
    PRIMARY KEY (tenant_id, session_id, seq),
    KEY events_kinds (tenant_id, session_id, kind, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

-- Of each event that takes a message back (seq) the message's seq.
CREATE TABLE IF NOT EXISTS retractions (
    tenant_id  VARBINARY(255) NOT NULL,
    session_id VARBINARY(255) NOT NULL,
    refers_to  BIGINT         NOT NULL,
    seq        BIGINT         NOT NULL,
    PRIMARY KEY (tenant_id, session_id, refers_to, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

CREATE TABLE IF NOT EXISTS tool_calls (
    tenant_id      VARBINARY(255) NOT NULL,
    session_id     VARBINARY(255) NOT NULL,
    seq            BIGINT         NOT NULL,
    version        BIGINT         NOT NULL,
    tool           VARBINARY(1024) NOT NULL,
    arguments_hash VARBINARY(64)  NOT NULL,
    status         VARBINARY(64)  NOT NULL,
    start_time     BIGINT         NOT NULL,
    end_time       BIGINT,
    tool_call_id   VARBINARY(1024),
    run_id         VARBINARY(255),
    result_seq     BIGINT,
    result_kind    VARBINARY(64)  NOT NULL,
    repeat_of      BIGINT,
    step           VARBINARY(255),
    PRIMARY KEY (tenant_id, session_id, seq),
    KEY tool_calls_repeated (tenant_id, session_id, arguments_hash, seq),
    KEY tool_calls_steps (tenant_id, session_id, run_id, step, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

-- record: the run as JSON, without the three texts that stand beside it. input is NULL once it is a message (input_seq).
CREATE TABLE IF NOT EXISTS runs (
    tenant_id      VARBINARY(255) NOT NULL,
    session_id     VARBINARY(255) NOT NULL,
    run_id         VARBINARY(255) NOT NULL,
    number         BIGINT         NOT NULL,
    status         VARBINARY(64)  NOT NULL,
    input_seq      BIGINT,
    record         LONGBLOB       NOT NULL,
    metadata       LONGBLOB,
    input          LONGBLOB,
    input_metadata LONGBLOB,
    parent_run_id  VARBINARY(255),
    PRIMARY KEY (tenant_id, session_id, run_id),
    KEY runs_numbered (tenant_id, session_id, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

-- Text that streams and is not final: body is JSON. The first piece has the message's metadata.
CREATE TABLE IF NOT EXISTS partials (
    tenant_id  VARBINARY(255) NOT NULL,
    session_id VARBINARY(255) NOT NULL,
    run_id     VARBINARY(255) NOT NULL,
    attempt    BIGINT         NOT NULL,
    message    BIGINT         NOT NULL,
    `offset`   BIGINT         NOT NULL,
    body       LONGBLOB       NOT NULL,
    metadata   LONGBLOB,
    PRIMARY KEY (tenant_id, session_id, run_id, attempt, message, `offset`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

CREATE TABLE IF NOT EXISTS idempotency_records (
    tenant_id   VARBINARY(255) NOT NULL,
    session_id  VARBINARY(255) NOT NULL,
    key_hash    VARBINARY(64)  NOT NULL,
    fingerprint VARBINARY(64)  NOT NULL,
    answer      LONGBLOB       NOT NULL,
    PRIMARY KEY (tenant_id, session_id, key_hash)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

-- Of the whole store, not of a session: api keys and the like.
CREATE TABLE IF NOT EXISTS settings (
    name     VARBINARY(255) NOT NULL,
    revision BIGINT         NOT NULL,
    value    LONGBLOB       NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = binary;

CREATE TABLE public.events (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    version bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    refers_to bigint,
    status text COLLATE pg_catalog."C",
    format text COLLATE pg_catalog."C",
    outcome text COLLATE pg_catalog."C",
    tokens bigint,
    streamed bigint,
    metadata text COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.idempotency_records (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    key_hash bytea NOT NULL,
    fingerprint bytea NOT NULL,
    answer text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.metadata (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.partials (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    attempt bigint NOT NULL,
    message bigint NOT NULL,
    "offset" bigint NOT NULL,
    body text NOT NULL COLLATE pg_catalog."C",
    metadata text COLLATE pg_catalog."C"
);
CREATE TABLE public.runs (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    input_seq bigint,
    record text NOT NULL COLLATE pg_catalog."C",
    metadata text COLLATE pg_catalog."C",
    input text COLLATE pg_catalog."C",
    input_metadata text COLLATE pg_catalog."C",
    parent_run_id text COLLATE pg_catalog."C"
)
WITH (fillfactor='80');
CREATE TABLE public.schema_version (
    version bigint NOT NULL,
    applied_at bigint NOT NULL
);
CREATE TABLE public.sessions (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    hidden boolean NOT NULL,
    updated_at bigint NOT NULL,
    turns_at bigint,
    retention bigint,
    revision bigint NOT NULL,
    ready_agent text COLLATE pg_catalog."C",
    sweep_at bigint,
    lease_until bigint,
    lease_clock text COLLATE pg_catalog."C",
    record text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02');
CREATE TABLE public.settings (
    name text NOT NULL COLLATE pg_catalog."C",
    revision bigint NOT NULL,
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.tool_calls (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    version bigint NOT NULL,
    tool text NOT NULL COLLATE pg_catalog."C",
    arguments_hash bytea NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    start_time bigint NOT NULL,
    end_time bigint,
    tool_call_id text COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    result_seq bigint,
    result_kind text NOT NULL COLLATE pg_catalog."C",
    repeat_of bigint,
    step text COLLATE pg_catalog."C"
)
WITH (fillfactor='80');
CREATE TABLE public.working_memory (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
);
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 1, 1, 'message', 1767225551000000, 'agent:shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"role":"system","content":"be brief"}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 2, 2, 'message', 1767225551000000, 'agent:shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{ "role": "user", "content": "NUL \u0000 😀", "n": 1.50 }');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 3, 3, 'message', 1767225551000000, 'agent:shop', NULL, NULL, NULL, 'adk.event', NULL, NULL, NULL, '{"by":"adk"}', '[1.50]');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 4, 4, 'run_added', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"number":1,"goal":"g","agent":"coding","metadata":{"m":1}}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 5, 4, 'message', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"role":"user","content":"go"}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 6, 4, 'run_started', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"attempt":1}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 7, 5, 'message', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"run","arguments":"{}"}}]}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 8, 6, 'tool_call_started', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"tool":"t","tool_call_id":"c1","arguments":{"a":1.0}}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 9, 7, 'message', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', 8, NULL, NULL, 'succeeded/json', NULL, NULL, NULL, '{"role":"tool","tool_call_id":"c1","content":"{\"rows\":1}"}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 10, 8, 'tool_call_recorded', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"tool":"t","tool_call_id":"c2","arguments":null}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 11, 8, 'message', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', 10, NULL, NULL, 'failed/text', NULL, NULL, NULL, '{"role":"tool","tool_call_id":"c2","content":"x"}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 12, 9, 'tool_call_recorded', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"tool":"t","arguments":{"a":1},"status":"succeeded","result":null}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 13, 10, 'working_memory_changed', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"set":{"goal":"g","notes":{"n":1}}}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 14, 11, 'run_step', 1767225552000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"kind":"model","name":"gpt","input_tokens":3,"output_tokens":0,"total_tokens":0}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 15, 12, 'run_ended', 1767225502000000, 'agent:shop', 'run_pclztvyp2jfehob2b6eqrl5r', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"status":"COMPLETED","stop_reason":"end_turn","steps":4,"usage":{"input_tokens":3,"total_tokens":3}}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 16, 13, 'message_retracted', 1767225502000000, 'agent:shop', NULL, 2, NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 17, 14, 'title_changed', 1767225502000000, 'agent:shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"title":"second title","former":"first title"}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 18, 14, 'metadata_changed', 1767225502000000, 'agent:shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"l":2}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 19, 15, 'session_closed', 1767225502000000, 'agent:shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"reason":"lunch"}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 20, 16, 'session_restored', 1767225502000000, 'agent:shop', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.events VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 21, 17, 'message', 1767225502000000, 'agent:shop', NULL, NULL, 'interrupted', NULL, NULL, NULL, NULL, NULL, '{"role":"assistant","content":"half"}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 1, 1, 'run_added', 1767225502000000, 'agent:shop', 'run_5r6kunhfebr4mhfos66wlg5e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"number":1,"goal":"","max_attempts":2,"memory":"run"}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 2, 1, 'message', 1767225502000000, 'agent:shop', 'run_5r6kunhfebr4mhfos66wlg5e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"role":"user","content":"one"}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 3, 1, 'run_started', 1767225502000000, 'agent:shop', 'run_5r6kunhfebr4mhfos66wlg5e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"attempt":1}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 4, 2, 'run_memory_changed', 1767225502000000, 'agent:shop', 'run_5r6kunhfebr4mhfos66wlg5e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"append":{"plan":["a 步"]}}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 5, 3, 'tool_call_started', 1767225502000000, 'agent:shop', 'run_5r6kunhfebr4mhfos66wlg5e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"tool":"t","tool_call_id":"c1","step":"look","arguments":{"a":1}}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 6, 4, 'run_added', 1767225502000000, 'agent:shop', 'run_cvufhokqdcdau42rd2o2xdsj', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"number":2,"goal":"a part","parent_run_id":"run_5r6kunhfebr4mhfos66wlg5e"}');
INSERT INTO public.events VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 7, 5, 'run_added', 1767225502000000, 'agent:shop', 'run_6kuim4lfltatsa3pdwldmmu7', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"number":3,"goal":"","agent":"coding"}');
INSERT INTO public.events VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', 1, 1, 'run_added', 1767225502000000, 'agent:shop', 'run_fqpzbnpxexxj4dlpy7kwifb3', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"number":1,"goal":""}');
INSERT INTO public.events VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', 2, 1, 'message', 1767225502000000, 'agent:shop', 'run_fqpzbnpxexxj4dlpy7kwifb3', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"role":"user","content":"size?"}');
INSERT INTO public.events VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', 3, 1, 'run_started', 1767225502000000, 'agent:shop', 'run_fqpzbnpxexxj4dlpy7kwifb3', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"attempt":1}');
INSERT INTO public.events VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', 4, 2, 'question_asked', 1767225502000000, 'agent:shop', 'run_fqpzbnpxexxj4dlpy7kwifb3', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"name":"size","question":"多大?","expires_at":"2026-01-07T23:58:22.000000Z"}');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xf3a4ba43794c9976eba4f4201dc46685', '\xcb119225ec872f63185adf2494472977', '[0,1767225551000000,[],["sess_hdi7dkwg6sierqqr6dbmsj3v"],"ACTIVE"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xb2cff57acd40dd9251fef0b17ebecb9c', '\x3224761d5bf64b3da34549aaeed8c135', '[1,1767225551000000,[1]]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x5c92eb43caa56bcc37a8b1f412d79bea', '\x2ae6e47b83a13a98359431647b20748f', '[2,1767225551000000,[2]]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x7e5d281fe5c2c9816b50d904917ad2ca', '\xdd4a0d99b56c96f109926a244262bdf3', '[3,1767225551000000,[3]]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x3e6a21cdc03317e6f992df1eedbd4f97', '\xdcc1c7044f17030025f8897a182ad8ba', '[4,1767225552000000,[1],["run_pclztvyp2jfehob2b6eqrl5r"],"RUNNING"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x76d5448f3faffe8b1907456202123d83', '\x30f4fa92b6121c43999a7d5656b92e7e', '[5,1767225552000000,[7]]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x413630209460d38c6228c383c39439ff', '\x875ba7335de8a9405565bb60b24029be', '[6,1767225552000000,[8],[],"started"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x97076fdc37cc88652e56f1290179e90d', '\xf5f82a84dc878d3c1c80a6c9c28ce807', '[7,1767225552000000,[8],[],"succeeded"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x84b344a36bbcae2d22e3676a80fc5361', '\xa6588e24d99252ac2fba38fc3d86daa1', '[8,1767225552000000,[10],[],"failed"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x0d0e9b75228c4f26e1ddc45a4e97fbfd', '\x4e00a2725153ce6a8515c65a8b4cd0b3', '[9,1767225552000000,[12,8],[],"succeeded"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x84b3e4276f1cd5861062693037f0c7f9', '\xf4d339dfe369c58494ac7d659c33ceae', '[10,1767225552000000]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xf5c54d1c57ffb0e8b1c362f901437cb4', '\x1b3fec9d424dbaebf1588c30d4ff47ef', '[11,1767225552000000,[1],["run_pclztvyp2jfehob2b6eqrl5r"],"RUNNING"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xbf0d90e090c4d9bcfc7404fa7d52ba40', '\x0a27a62265c6ce4ae49fd8c239ba21ba', '[12,1767225502000000,[1],["run_pclztvyp2jfehob2b6eqrl5r"],"COMPLETED"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xa0f9231ef5b71da5eec0df022574a4e5', '\xe1dae4a20353935bf33548b06d8c46ed', '[13,1767225502000000,[2]]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xa70cac6b50818f67c01ebddbe9fa1db2', '\xc7b908e4c5a5e24ae963003dd6d77ae1', '[14,1767225502000000]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x9f0468065dba82a286b3c471420a861b', '\x67c3d5fb0be5d09914f8e9148b9a73c5', '[15,1767225502000000,[],[],"CLOSED"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\x0ac3fcae5e1973deea085a5dcac9a467', '\x96c715060d84d9db99b17c65d18249c0', '[16,1767225502000000,[],[],"ACTIVE"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '\xab7850dfc2ef361d518fc8b244950948', '\x4ae6b697c7842eaa900d05cb01d541b2', '[17,1767225502000000,[21]]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', '\x3f87a863b0e0262cbc16896d53931fe3', '\x224d348a9ef964708ac6f178e39ef3ef', '[0,1767225502000000,[],["sess_xyqp3uw23ixwpveh5rvsg7wk"],"ACTIVE"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', '\xaabbc3cdc2212cf07137070b6cef9e67', '\xfc78862e91d31dacf6f9477f8dc7882b', '[0,1767225502000000,[],["sess_2jmqit2eksxkmqvvauqe2i2j"],"ACTIVE"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', '\x3c74a6256711900a3dfce7c097641c2b', '\xf4957d359b63574d06df3d243b86fb2c', '[1,1767225502000000,[1],["run_5r6kunhfebr4mhfos66wlg5e"],"RUNNING"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', '\x070668057d6fc62ea61e04f092f44714', '\x92bea17646fbe806ad035f9ad289d9d0', '[2,1767225502000000]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', '\x5b294fad062f59979efa08e6c679e65f', '\xc544bdac4ff601cc38eb15071e0c7c69', '[3,1767225502000000,[5],[],"started"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', '\x329aac364693392e8a5ef0bddf3af21a', '\x07947d0ade171d5f12434fdb41877525', '[4,1767225502000000,[1],["run_cvufhokqdcdau42rd2o2xdsj"],"RUNNING"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', '\xd4b34aa39779317ed6aa7fdeee47bf42', '\x1c01b38d7b0b801dbcf1cbc41c8cf03c', '[5,1767225502000000,[0],["run_6kuim4lfltatsa3pdwldmmu7"],"READY"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', '\xa5cb9d700e380631ab3ce147fb21d6e6', '\xbcbeeb2c43e8fc64e6244e07bf2ee041', '[1,1767225502000000,[1],["run_fqpzbnpxexxj4dlpy7kwifb3"],"RUNNING"]');
INSERT INTO public.idempotency_records VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', '\xfb157c2b9baf9c124b12a249d248c369', '\x33e0921f55f5dca2217499d1fa8d1ca5', '[2,1767225502000000,[1,4],["run_fqpzbnpxexxj4dlpy7kwifb3"],"WAITING"]');
INSERT INTO public.metadata VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '{"k":[1.5,"修"],"l":2}');
INSERT INTO public.partials VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 'run_5r6kunhfebr4mhfos66wlg5e', 1, 1, 0, '"half of it"', NULL);
INSERT INTO public.runs VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 'run_pclztvyp2jfehob2b6eqrl5r', 1, 'COMPLETED', 5, '{"run_id":"run_pclztvyp2jfehob2b6eqrl5r","number":1,"status":"COMPLETED","created_at":1767225552000000,"version":12,"goal":"g","agent":"coding","start_time":1767225552000000,"end_time":1767225502000000,"steps":4,"usage":{"input_tokens":3,"total_tokens":3},"stop_reason":"end_turn","attempt":1,"input_seq":5}', '{"m":1}', NULL, NULL, NULL);
INSERT INTO public.runs VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 'run_5r6kunhfebr4mhfos66wlg5e', 1, 'RUNNING', 2, '{"run_id":"run_5r6kunhfebr4mhfos66wlg5e","number":1,"status":"RUNNING","created_at":1767225502000000,"version":2,"start_time":1767225502000000,"attempt":1,"max_attempts":2,"memory":"run","layer_version":2,"input_seq":2,"layer":{"append":{"plan":["a 步"]}}}', NULL, NULL, NULL, NULL);
INSERT INTO public.runs VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 'run_cvufhokqdcdau42rd2o2xdsj', 2, 'RUNNING', NULL, '{"run_id":"run_cvufhokqdcdau42rd2o2xdsj","number":2,"status":"RUNNING","created_at":1767225502000000,"version":4,"goal":"a part","start_time":1767225502000000,"attempt":1,"parent_run_id":"run_5r6kunhfebr4mhfos66wlg5e","added_seq":6}', NULL, NULL, NULL, 'run_5r6kunhfebr4mhfos66wlg5e');
INSERT INTO public.runs VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 'run_6kuim4lfltatsa3pdwldmmu7', 3, 'READY', NULL, '{"run_id":"run_6kuim4lfltatsa3pdwldmmu7","number":3,"status":"READY","created_at":1767225502000000,"version":5,"agent":"coding"}', NULL, '{"role":"user","content":"two"}', NULL, NULL);
INSERT INTO public.runs VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', 'run_fqpzbnpxexxj4dlpy7kwifb3', 1, 'WAITING', 2, '{"run_id":"run_fqpzbnpxexxj4dlpy7kwifb3","number":1,"status":"WAITING","created_at":1767225502000000,"version":2,"start_time":1767225502000000,"attempt":1,"input_seq":2,"question":{"name":"size","question":"多大?","expires_at":1767830302000000,"seq":4}}', NULL, NULL, NULL, NULL);
INSERT INTO public.schema_version VALUES (1, 1795994293720989);
INSERT INTO public.sessions VALUES ('acme', 'sess_couf4ouoj4fh7sbjvjye4as5', 'ada', 'DELETED', false, 1767225502000000, NULL, NULL, 135594979905649, NULL, NULL, NULL, NULL, '{"tenant_id":"acme","session_id":"sess_couf4ouoj4fh7sbjvjye4as5","user_id":"ada","revision":135594979905649,"created_at":1767225502000000,"updated_at":1767225502000000,"active_at":1767225502000000,"clock_from":1767225502000000,"status":"DELETED","version":1,"last_seq":1,"closed_at":1767225502000000,"changed":{"status":1},"lifecycle":[{"at":1767225502000000,"to":"DELETED","actor":"user:ada"}],"transitions":1}');
INSERT INTO public.sessions VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 'ada', 'ACTIVE', false, 1767225552000000, 1769817502000000, NULL, 54659842458082, NULL, 1769817502000000, NULL, NULL, '{"tenant_id":"acme","session_id":"sess_hdi7dkwg6sierqqr6dbmsj3v","user_id":"ada","revision":54659842458082,"created_at":1767225551000000,"updated_at":1767225552000000,"active_at":1767225502000000,"clock_from":1767225502000000,"version":17,"last_seq":21,"title":"second title","external_id":"chat-1","messages":8,"tool_calls":3,"runs":1,"retracted":1,"context_tokens":57,"usage":{"input_tokens":3,"total_tokens":3},"changed":{"messages":17,"tool_history":9,"runs":12,"working_memory":10,"metadata":14,"title":14,"status":16},"run_number":1,"lifecycle":[{"at":1767225502000000,"to":"CLOSED","actor":"agent:shop","reason":"lunch"},{"at":1767225502000000,"to":"ACTIVE","actor":"agent:shop"}],"transitions":2,"sweep_at":1769817502000000}');
INSERT INTO public.sessions VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 'ada', 'ACTIVE', false, 1767225502000000, NULL, NULL, 11111834183209, NULL, 1769817502000000, 1032000000, 'boot-1', '{"tenant_id":"acme","session_id":"sess_xyqp3uw23ixwpveh5rvsg7wk","user_id":"ada","revision":11111834183209,"created_at":1767225502000000,"updated_at":1767225502000000,"active_at":1767225502000000,"clock_from":1767225502000000,"version":5,"last_seq":7,"external_id":"working","messages":1,"tool_calls":1,"runs":3,"context_tokens":5,"changed":{"messages":1,"tool_history":3,"runs":5},"run_number":3,"turn":{"run_id":"run_5r6kunhfebr4mhfos66wlg5e","status":"RUNNING","attempt":1,"lease":{"each":30000000,"until":1032000000,"clock":"boot-1"},"has_layer":true},"queue":[{"run_id":"run_6kuim4lfltatsa3pdwldmmu7","agent":"coding","size":31}],"children":[{"run_id":"run_cvufhokqdcdau42rd2o2xdsj"}],"child_runs":1,"open_calls":[{"seq":5,"tool_call_id":"c1","run_id":"run_5r6kunhfebr4mhfos66wlg5e"}],"streams":[{"run_id":"run_5r6kunhfebr4mhfos66wlg5e","attempt":1,"message":1,"offset":10,"size":10}],"sweep_at":1769817502000000,"lease_until":1032000000,"lease_clock":"boot-1"}');
INSERT INTO public.sessions VALUES ('acme', 'sess_2jmqit2eksxkmqvvauqe2i2j', 'ada', 'ACTIVE', false, 1767225502000000, 1770422302000000, NULL, 130093809126537, NULL, 1767830302000000, NULL, NULL, '{"tenant_id":"acme","session_id":"sess_2jmqit2eksxkmqvvauqe2i2j","user_id":"ada","revision":130093809126537,"created_at":1767225502000000,"updated_at":1767225502000000,"active_at":1767225502000000,"clock_from":1767225502000000,"version":2,"last_seq":4,"external_id":"asking","messages":1,"runs":1,"context_tokens":6,"changed":{"messages":1,"runs":2},"run_number":1,"turn":{"run_id":"run_fqpzbnpxexxj4dlpy7kwifb3","status":"WAITING","attempt":1,"expires_at":1767830302000000},"sweep_at":1767830302000000}');
INSERT INTO public.settings VALUES ('greeting', 1, '{"say":"你好"}');
INSERT INTO public.tool_calls VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 8, 7, 't', '\x6c934cae50b937a04306c5f38bee72b8', 'succeeded', 1767225552000000, 1767225552000000, 'c1', 'run_pclztvyp2jfehob2b6eqrl5r', 9, 'json', NULL, NULL);
INSERT INTO public.tool_calls VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 10, 8, 't', '\xaeeee982c8906b2066b2fb96689eda05', 'failed', 1767225552000000, 1767225552000000, 'c2', 'run_pclztvyp2jfehob2b6eqrl5r', 11, 'text', NULL, NULL);
INSERT INTO public.tool_calls VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', 12, 9, 't', '\x6c934cae50b937a04306c5f38bee72b8', 'succeeded', 1767225552000000, 1767225552000000, NULL, 'run_pclztvyp2jfehob2b6eqrl5r', 12, 'event', 8, NULL);
INSERT INTO public.tool_calls VALUES ('acme', 'sess_xyqp3uw23ixwpveh5rvsg7wk', 5, 3, 't', '\x6c934cae50b937a04306c5f38bee72b8', 'started', 1767225502000000, NULL, 'c1', 'run_5r6kunhfebr4mhfos66wlg5e', NULL, 'event', NULL, 'look');
INSERT INTO public.working_memory VALUES ('acme', 'sess_hdi7dkwg6sierqqr6dbmsj3v', '{"goal":"g","notes":{"n":1}}');
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (tenant_id, session_id, seq);
ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY (tenant_id, session_id, key_hash);
ALTER TABLE ONLY public.metadata
    ADD CONSTRAINT metadata_pkey PRIMARY KEY (tenant_id, session_id);
ALTER TABLE ONLY public.partials
    ADD CONSTRAINT partials_pkey PRIMARY KEY (tenant_id, session_id, run_id, attempt, message, "offset");
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (tenant_id, session_id, run_id);
ALTER TABLE ONLY public.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (tenant_id, session_id);
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.tool_calls
    ADD CONSTRAINT tool_calls_pkey PRIMARY KEY (tenant_id, session_id, seq);
ALTER TABLE ONLY public.working_memory
    ADD CONSTRAINT working_memory_pkey PRIMARY KEY (tenant_id, session_id);
CREATE INDEX events_messages ON public.events USING btree (tenant_id, session_id, seq) WHERE (kind = 'message'::text);
CREATE INDEX events_retractions ON public.events USING btree (tenant_id, session_id, refers_to) WHERE (kind = 'message_retracted'::text);
CREATE INDEX runs_numbered ON public.runs USING btree (tenant_id, session_id, number);
CREATE INDEX sessions_leased ON public.sessions USING btree (lease_clock, lease_until, tenant_id, session_id) WHERE (lease_until IS NOT NULL);
CREATE INDEX sessions_listed ON public.sessions USING btree (tenant_id, user_id, updated_at, session_id) WHERE ((NOT hidden) AND (status <> 'DELETED'::text));
CREATE INDEX sessions_ready ON public.sessions USING btree (ready_agent, tenant_id, session_id) WHERE (ready_agent IS NOT NULL);
CREATE INDEX sessions_swept ON public.sessions USING btree (sweep_at, tenant_id, session_id) WHERE (sweep_at IS NOT NULL);
CREATE INDEX tool_calls_repeated ON public.tool_calls USING btree (tenant_id, session_id, arguments_hash, seq);
CREATE INDEX tool_calls_steps ON public.tool_calls USING btree (tenant_id, session_id, run_id, step, seq) WHERE (step IS NOT NULL);

BEGIN TRANSACTION;
CREATE TABLE erasures (
    tenant_id  TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    mark       INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
    tenant_id  TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    run_id     TEXT,
    refers_to  INTEGER,
    status     TEXT,
    format     TEXT,
    outcome    TEXT,
    tokens     INTEGER,
    streamed   INTEGER,
    metadata   TEXT,
    body       TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, session_id, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "events" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',1,1,'run_added',1767225551000000,'agent:shop','run_r6g7bhoid36kuewii4alaiwu',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"number":1,"goal":""}');
INSERT INTO "events" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',2,1,'message',1767225551000000,'agent:shop','run_r6g7bhoid36kuewii4alaiwu',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"role":"user","content":"size?"}');
INSERT INTO "events" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',3,1,'run_started',1767225551000000,'agent:shop','run_r6g7bhoid36kuewii4alaiwu',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"attempt":1}');
INSERT INTO "events" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',4,2,'question_asked',1767225551000000,'agent:shop','run_r6g7bhoid36kuewii4alaiwu',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"name":"size","question":"多大?","expires_at":"2026-01-07T23:59:11.000000Z"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',1,1,'message',1767225600000000,'agent:shop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"role":"system","content":"be brief"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',2,2,'message',1767225600000000,'agent:shop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{ "role": "user", "content": "NUL \u0000 😀", "n": 1.50 }');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',3,3,'message',1767225600000000,'agent:shop',NULL,NULL,NULL,'adk.event',NULL,NULL,NULL,'{"by":"adk"}','[1.50]');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',4,4,'run_added',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"number":1,"goal":"g","agent":"coding","metadata":{"m":1}}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',5,4,'message',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"role":"user","content":"go"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',6,4,'run_started',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"attempt":1}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',7,5,'message',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"run","arguments":"{}"}}]}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',8,6,'tool_call_started',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"tool":"t","tool_call_id":"c1","arguments":{"a":1.0}}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',9,7,'message',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',8,NULL,NULL,'succeeded/json',NULL,NULL,NULL,'{"role":"tool","tool_call_id":"c1","content":"{\"rows\":1}"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',10,8,'tool_call_recorded',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"tool":"t","tool_call_id":"c2","arguments":null}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',11,8,'message',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',10,NULL,NULL,'failed/text',NULL,NULL,NULL,'{"role":"tool","tool_call_id":"c2","content":"x"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',12,9,'tool_call_recorded',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"tool":"t","arguments":{"a":1},"status":"succeeded","result":null}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',13,10,'working_memory_changed',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"set":{"goal":"g","notes":{"n":1}}}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',14,11,'run_step',1767225601000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"kind":"model","name":"gpt","input_tokens":3,"output_tokens":0,"total_tokens":0}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',15,12,'run_ended',1767225551000000,'agent:shop','run_6flexdhtsrh33tckleks2p63',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"status":"COMPLETED","stop_reason":"end_turn","steps":4,"usage":{"input_tokens":3,"total_tokens":3}}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',16,13,'message_retracted',1767225551000000,'agent:shop',NULL,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',17,14,'title_changed',1767225551000000,'agent:shop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"title":"second title","former":"first title"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',18,14,'metadata_changed',1767225551000000,'agent:shop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"l":2}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',19,15,'session_closed',1767225551000000,'agent:shop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"reason":"lunch"}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',20,16,'session_restored',1767225551000000,'agent:shop',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',21,17,'message',1767225551000000,'agent:shop',NULL,NULL,'interrupted',NULL,NULL,NULL,NULL,NULL,'{"role":"assistant","content":"half"}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',1,1,'run_added',1767225551000000,'agent:shop','run_4f47vmtyi2exnkarwivdmobk',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"number":1,"goal":"","max_attempts":2,"memory":"run"}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',2,1,'message',1767225551000000,'agent:shop','run_4f47vmtyi2exnkarwivdmobk',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"role":"user","content":"one"}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',3,1,'run_started',1767225551000000,'agent:shop','run_4f47vmtyi2exnkarwivdmobk',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"attempt":1}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',4,2,'run_memory_changed',1767225551000000,'agent:shop','run_4f47vmtyi2exnkarwivdmobk',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"append":{"plan":["a 步"]}}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',5,3,'tool_call_started',1767225551000000,'agent:shop','run_4f47vmtyi2exnkarwivdmobk',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"tool":"t","tool_call_id":"c1","step":"look","arguments":{"a":1}}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',6,4,'run_added',1767225551000000,'agent:shop','run_7wnbmfh7fkelmv5fyxdwrylr',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"number":2,"goal":"a part","parent_run_id":"run_4f47vmtyi2exnkarwivdmobk"}');
INSERT INTO "events" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',7,5,'run_added',1767225551000000,'agent:shop','run_zb6vavo3ivemcv4bteb5zkgg',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"number":3,"goal":"","agent":"coding"}');
CREATE TABLE idempotency_records (
    tenant_id   TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    key_hash    BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    answer      TEXT NOT NULL,
    PRIMARY KEY (tenant_id, session_id, key_hash)
) STRICT, WITHOUT ROWID;
INSERT INTO "idempotency_records" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',X'3612527D471A58CC974497849466BC95',X'7471D99D4030F1E22B5806BAF8426CFA','[2,1767225551000000,[1,4],["run_r6g7bhoid36kuewii4alaiwu"],"WAITING"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',X'AEBC567DF78884AC4564D96EDE2D93F6',X'BCBEEB2C43E8FC64E6244E07BF2EE041','[1,1767225551000000,[1],["run_r6g7bhoid36kuewii4alaiwu"],"RUNNING"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j',X'DB89C9B6EC8F22E4941DE3F7DEE8390C',X'FC78862E91D31DACF6F9477F8DC7882B','[0,1767225551000000,[],["sess_2jmqit2eksxkmqvvauqe2i2j"],"ACTIVE"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'0F95550128EE65EB97D3C61258E623DD',X'E1DAE4A20353935BF33548B06D8C46ED','[13,1767225551000000,[2]]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'11D58C3E49E930B33F80F1B192D9920F',X'C7B908E4C5A5E24AE963003DD6D77AE1','[14,1767225551000000]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'12B903F63412ADFDD0603B12351F8F6C',X'35E8A3FA2CAD2073276F58F174CD0898','[12,1767225551000000,[1],["run_6flexdhtsrh33tckleks2p63"],"COMPLETED"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'29BD92326011ED36D38EF790E5634B76',X'67C3D5FB0BE5D09914F8E9148B9A73C5','[15,1767225551000000,[],[],"CLOSED"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'318432B795A12B2C6DDCB6DB356067A2',X'DD4A0D99B56C96F109926A244262BDF3','[3,1767225600000000,[3]]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'36CF4976DB7C63B8C5E1359790FE66F5',X'CB119225EC872F63185ADF2494472977','[0,1767225600000000,[],["sess_hdi7dkwg6sierqqr6dbmsj3v"],"ACTIVE"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'487C42A027F4FCD0E6A6CB53336549A1',X'1A759C51C54335AE9EEDC077390EF565','[6,1767225601000000,[8],[],"started"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'4C40E3B33E81C48E19561770269B9841',X'3224761D5BF64B3DA34549AAEED8C135','[1,1767225600000000,[1]]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'4D1EC6E6182D23F23538D8447CA75C61',X'A173FB408AEC5DF3E769E14B03E4E7E5','[10,1767225601000000]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'52FCCF9FE8ECD5389C52EA881CC90463',X'3901CDA0A47A6EC20EE7D3B47C42482B','[11,1767225601000000,[1],["run_6flexdhtsrh33tckleks2p63"],"RUNNING"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'54FBD73D49C42550FFAF097D0C801540',X'89EF571E53476208D1A91C5325997E2F','[7,1767225601000000,[8],[],"succeeded"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'80637C854CC21989F093DF1BC544532F',X'DCC1C7044F17030025F8897A182AD8BA','[4,1767225601000000,[1],["run_6flexdhtsrh33tckleks2p63"],"RUNNING"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'9635AA84AF52A70A3F7B38246AA569C6',X'17D35AF7041391D80E4386BC75299F78','[9,1767225601000000,[12,8],[],"succeeded"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'A1BA277F24AEA2C7BAA0FB324CFB805F',X'96C715060D84D9DB99B17C65D18249C0','[16,1767225551000000,[],[],"ACTIVE"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'BC05DEE60EB58D625772A4E28CE953F2',X'75767DCC7FF135711071C1C740060908','[5,1767225601000000,[7]]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'D597A40342A5AB5DD747BB2B6048C546',X'8D899CB09B956D8B3A283A90EEEE6C93','[8,1767225601000000,[10],[],"failed"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'D87FD0E5A562306ABCD55231C7B5D5AC',X'2AE6E47B83A13A98359431647B20748F','[2,1767225600000000,[2]]');
INSERT INTO "idempotency_records" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',X'E9ADFDB3D0A0C8939C86E26D08530C81',X'4AE6B697C7842EAA900D05CB01D541B2','[17,1767225551000000,[21]]');
INSERT INTO "idempotency_records" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',X'00F576D4A97E32720D79A7561FD053A4',X'A46B656105C15EB060A4828B8EB1A4E0','[2,1767225551000000]');
INSERT INTO "idempotency_records" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',X'93FD777F77DDF59A9F9A0654570B0E3D',X'9FE4A9532DEA6803B1B16D36DC1AB4F7','[3,1767225551000000,[5],[],"started"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',X'BBB611FCAD14C6FD4024564E914DF6BB',X'F4957D359B63574D06DF3D243B86FB2C','[1,1767225551000000,[1],["run_4f47vmtyi2exnkarwivdmobk"],"RUNNING"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',X'DB9131BA116F76EABE79B5860C1CEEDF',X'10860C097142AEDB1784B78AB056A54F','[4,1767225551000000,[1],["run_7wnbmfh7fkelmv5fyxdwrylr"],"RUNNING"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',X'E4241F6FB84269D77756B568C663EEEF',X'1C01B38D7B0B801DBCF1CBC41C8CF03C','[5,1767225551000000,[0],["run_zb6vavo3ivemcv4bteb5zkgg"],"READY"]');
INSERT INTO "idempotency_records" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',X'F6AE52FB8D3E2AFEA7152C4B4E02F81E',X'224D348A9EF964708AC6F178E39EF3EF','[0,1767225551000000,[],["sess_xyqp3uw23ixwpveh5rvsg7wk"],"ACTIVE"]');
CREATE TABLE metadata (
    tenant_id  TEXT NOT NULL,
    session_id TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "metadata" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v','{"k":[1.5,"修"],"l":2}');
CREATE TABLE partials (
    tenant_id  TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    message    INTEGER NOT NULL,
    "offset"   INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    metadata   TEXT,
    PRIMARY KEY (tenant_id, session_id, run_id, attempt, message, "offset")
) STRICT, WITHOUT ROWID;
INSERT INTO "partials" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk','run_4f47vmtyi2exnkarwivdmobk',1,1,0,'"half of it"',NULL);
CREATE TABLE runs (
    tenant_id      TEXT    NOT NULL,
    session_id     TEXT    NOT NULL,
    run_id         TEXT    NOT NULL,
    number         INTEGER NOT NULL,
    status         TEXT    NOT NULL,
    input_seq      INTEGER,
    record         TEXT    NOT NULL,
    metadata       TEXT,
    input          TEXT,
    input_metadata TEXT,
    parent_run_id  TEXT,
    PRIMARY KEY (tenant_id, session_id, run_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "runs" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j','run_r6g7bhoid36kuewii4alaiwu',1,'WAITING',2,'{"run_id":"run_r6g7bhoid36kuewii4alaiwu","number":1,"status":"WAITING","created_at":1767225551000000,"version":2,"start_time":1767225551000000,"attempt":1,"input_seq":2,"question":{"name":"size","question":"多大?","expires_at":1767830351000000,"seq":4}}',NULL,NULL,NULL,NULL);
INSERT INTO "runs" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v','run_6flexdhtsrh33tckleks2p63',1,'COMPLETED',5,'{"run_id":"run_6flexdhtsrh33tckleks2p63","number":1,"status":"COMPLETED","created_at":1767225601000000,"version":12,"goal":"g","agent":"coding","start_time":1767225601000000,"end_time":1767225551000000,"steps":4,"usage":{"input_tokens":3,"total_tokens":3},"stop_reason":"end_turn","attempt":1,"input_seq":5}','{"m":1}',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk','run_4f47vmtyi2exnkarwivdmobk',1,'RUNNING',2,'{"run_id":"run_4f47vmtyi2exnkarwivdmobk","number":1,"status":"RUNNING","created_at":1767225551000000,"version":2,"start_time":1767225551000000,"attempt":1,"max_attempts":2,"memory":"run","layer_version":2,"input_seq":2,"layer":{"append":{"plan":["a 步"]}}}',NULL,NULL,NULL,NULL);
INSERT INTO "runs" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk','run_7wnbmfh7fkelmv5fyxdwrylr',2,'RUNNING',NULL,'{"run_id":"run_7wnbmfh7fkelmv5fyxdwrylr","number":2,"status":"RUNNING","created_at":1767225551000000,"version":4,"goal":"a part","start_time":1767225551000000,"attempt":1,"parent_run_id":"run_4f47vmtyi2exnkarwivdmobk","added_seq":6}',NULL,NULL,NULL,'run_4f47vmtyi2exnkarwivdmobk');
INSERT INTO "runs" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk','run_zb6vavo3ivemcv4bteb5zkgg',3,'READY',NULL,'{"run_id":"run_zb6vavo3ivemcv4bteb5zkgg","number":3,"status":"READY","created_at":1767225551000000,"version":5,"agent":"coding"}',NULL,'{"role":"user","content":"two"}',NULL,NULL);
CREATE TABLE schema_version (
    version    INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT;
INSERT INTO "schema_version" VALUES(1,1795994293332771);
CREATE TABLE sessions (
    tenant_id   TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,
    user_id     TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    hidden      INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    turns_at    INTEGER,
    retention   INTEGER,
    revision    INTEGER NOT NULL,
    ready_agent TEXT,
    sweep_at    INTEGER,
    lease_until INTEGER,
    lease_clock TEXT,
    record      TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) STRICT;
INSERT INTO "sessions" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v','ada','ACTIVE',0,1767225601000000,1769817551000000,NULL,130535483246080,NULL,1769817551000000,NULL,NULL,'{"tenant_id":"acme","session_id":"sess_hdi7dkwg6sierqqr6dbmsj3v","user_id":"ada","revision":130535483246080,"created_at":1767225600000000,"updated_at":1767225601000000,"active_at":1767225551000000,"clock_from":1767225551000000,"version":17,"last_seq":21,"title":"second title","external_id":"chat-1","messages":8,"tool_calls":3,"runs":1,"retracted":1,"context_tokens":57,"usage":{"input_tokens":3,"total_tokens":3},"changed":{"messages":17,"tool_history":9,"runs":12,"working_memory":10,"metadata":14,"title":14,"status":16},"run_number":1,"lifecycle":[{"at":1767225551000000,"to":"CLOSED","actor":"agent:shop","reason":"lunch"},{"at":1767225551000000,"to":"ACTIVE","actor":"agent:shop"}],"transitions":2,"sweep_at":1769817551000000}');
INSERT INTO "sessions" VALUES('acme','sess_j6fpkf5abitfzklld5kseqey','ada','DELETED',0,1767225551000000,NULL,NULL,91568457870249,NULL,NULL,NULL,NULL,'{"tenant_id":"acme","session_id":"sess_j6fpkf5abitfzklld5kseqey","user_id":"ada","revision":91568457870249,"created_at":1767225551000000,"updated_at":1767225551000000,"active_at":1767225551000000,"clock_from":1767225551000000,"status":"DELETED","version":1,"last_seq":1,"closed_at":1767225551000000,"changed":{"status":1},"lifecycle":[{"at":1767225551000000,"to":"DELETED","actor":"user:ada"}],"transitions":1}');
INSERT INTO "sessions" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk','ada','ACTIVE',0,1767225551000000,NULL,NULL,79853983618274,NULL,1769817551000000,1031000000,'boot-1','{"tenant_id":"acme","session_id":"sess_xyqp3uw23ixwpveh5rvsg7wk","user_id":"ada","revision":79853983618274,"created_at":1767225551000000,"updated_at":1767225551000000,"active_at":1767225551000000,"clock_from":1767225551000000,"version":5,"last_seq":7,"external_id":"working","messages":1,"tool_calls":1,"runs":3,"context_tokens":5,"changed":{"messages":1,"tool_history":3,"runs":5},"run_number":3,"turn":{"run_id":"run_4f47vmtyi2exnkarwivdmobk","status":"RUNNING","attempt":1,"lease":{"each":30000000,"until":1031000000,"clock":"boot-1"},"has_layer":true},"queue":[{"run_id":"run_zb6vavo3ivemcv4bteb5zkgg","agent":"coding","size":31}],"children":[{"run_id":"run_7wnbmfh7fkelmv5fyxdwrylr"}],"child_runs":1,"open_calls":[{"seq":5,"tool_call_id":"c1","run_id":"run_4f47vmtyi2exnkarwivdmobk"}],"streams":[{"run_id":"run_4f47vmtyi2exnkarwivdmobk","attempt":1,"message":1,"offset":10,"size":10}],"sweep_at":1769817551000000,"lease_until":1031000000,"lease_clock":"boot-1"}');
INSERT INTO "sessions" VALUES('acme','sess_2jmqit2eksxkmqvvauqe2i2j','ada','ACTIVE',0,1767225551000000,1770422351000000,NULL,33848400596643,NULL,1767830351000000,NULL,NULL,'{"tenant_id":"acme","session_id":"sess_2jmqit2eksxkmqvvauqe2i2j","user_id":"ada","revision":33848400596643,"created_at":1767225551000000,"updated_at":1767225551000000,"active_at":1767225551000000,"clock_from":1767225551000000,"version":2,"last_seq":4,"external_id":"asking","messages":1,"runs":1,"context_tokens":6,"changed":{"messages":1,"runs":2},"run_number":1,"turn":{"run_id":"run_r6g7bhoid36kuewii4alaiwu","status":"WAITING","attempt":1,"expires_at":1767830351000000},"sweep_at":1767830351000000}');
CREATE TABLE settings (
    name     TEXT    NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    value    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "settings" VALUES('greeting',1,'{"say":"你好"}');
CREATE TABLE tool_calls (
    tenant_id      TEXT    NOT NULL,
    session_id     TEXT    NOT NULL,
    seq            INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    tool           TEXT    NOT NULL,
    arguments_hash BLOB    NOT NULL,
    status         TEXT    NOT NULL,
    start_time     INTEGER NOT NULL,
    end_time       INTEGER,
    tool_call_id   TEXT,
    run_id         TEXT,
    result_seq     INTEGER,
    result_kind    TEXT    NOT NULL,
    repeat_of      INTEGER,
    step           TEXT,
    PRIMARY KEY (tenant_id, session_id, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "tool_calls" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',8,7,'t',X'6C934CAE50B937A04306C5F38BEE72B8','succeeded',1767225601000000,1767225601000000,'c1','run_6flexdhtsrh33tckleks2p63',9,'json',NULL,NULL);
INSERT INTO "tool_calls" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',10,8,'t',X'AEEEE982C8906B2066B2FB96689EDA05','failed',1767225601000000,1767225601000000,'c2','run_6flexdhtsrh33tckleks2p63',11,'text',NULL,NULL);
INSERT INTO "tool_calls" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v',12,9,'t',X'6C934CAE50B937A04306C5F38BEE72B8','succeeded',1767225601000000,1767225601000000,NULL,'run_6flexdhtsrh33tckleks2p63',12,'event',8,NULL);
INSERT INTO "tool_calls" VALUES('acme','sess_xyqp3uw23ixwpveh5rvsg7wk',5,3,'t',X'6C934CAE50B937A04306C5F38BEE72B8','started',1767225551000000,NULL,'c1','run_4f47vmtyi2exnkarwivdmobk',NULL,'event',NULL,'look');
CREATE TABLE working_memory (
    tenant_id  TEXT NOT NULL,
    session_id TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (tenant_id, session_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "working_memory" VALUES('acme','sess_hdi7dkwg6sierqqr6dbmsj3v','{"goal":"g","notes":{"n":1}}');
CREATE INDEX sessions_listed
    ON sessions (tenant_id, user_id, updated_at, session_id, status, turns_at, retention, hidden)
    WHERE hidden = 0 AND status <> 'DELETED';
CREATE INDEX sessions_ready ON sessions (ready_agent, tenant_id, session_id) WHERE ready_agent IS NOT NULL;
CREATE INDEX sessions_swept ON sessions (sweep_at, tenant_id, session_id) WHERE sweep_at IS NOT NULL;
CREATE INDEX sessions_leased ON sessions (lease_until, lease_clock, tenant_id, session_id)
    WHERE lease_until IS NOT NULL;
CREATE INDEX events_messages ON events (tenant_id, session_id, seq) WHERE kind = 'message';
CREATE INDEX events_retractions ON events (tenant_id, session_id, refers_to) WHERE kind = 'message_retracted';
CREATE INDEX tool_calls_repeated ON tool_calls (tenant_id, session_id, arguments_hash, seq);
CREATE INDEX tool_calls_steps ON tool_calls (tenant_id, session_id, run_id, step, seq) WHERE step IS NOT NULL;
CREATE INDEX runs_numbered ON runs (tenant_id, session_id, number);
COMMIT;

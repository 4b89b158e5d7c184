#!lua flags=no-writes
-- A page of a session's log.
-- KEYS: 1 session, 2 events, 3 messages, 4 what is newest.
-- ARGV: the clock, after, before, newest first, kind, run, with those that were taken back, limit, and how many to look at.
-- Answers: the clock, the record, its revision, the rows, their seqs, those that were taken back, where the look ended early.
local now = clock(ARGV[1])
local kept = redis.call('HMGET', KEYS[1], 'record', 'revision')
if not kept[1] then return {now, false} end
local kind = ARGV[5]
local is_messages = kind == 'message'
local rows, seqs, back, came_to = page({events = KEYS[2], newest = KEYS[4]}, {
    seqs = is_messages and KEYS[3],
    after = tonumber(ARGV[2]),
    before = ARGV[3] == '' and math.huge or tonumber(ARGV[3]),
    newest_first = ARGV[4] == '1',
    kind = is_messages and '' or kind,
    run = ARGV[6],
    is_filtered = ARGV[6] ~= '' or (kind ~= '' and not is_messages),
    with_retracted = ARGV[7] == '1',
    limit = tonumber(ARGV[8]),
    budget = tonumber(ARGV[9]),
})
return {now, kept[1], kept[2], rows, seqs, back, came_to}

#!lua flags=no-writes
-- One session as decisions see it, in one snapshot: its record, and of its rows what is asked for.
--
-- KEYS: 1 session, 2 idempotency records; for more than these also: 3 calls, 4 what is newest, 5 runs, 6 events, then the
-- pieces of each stream that is asked for.
-- Answers: the clock, the record, idempotency records, memory, metadata, runs, calls, seqs of equal calls, calls by step, events.
-- pieces; of rows only those that exist, each list as long as what was asked for, with false in the gaps.
local at = 0
local function take()
    at = at + 1
    return ARGV[at]
end
local function take_all()
    local count = tonumber(take())
    local found = {}
    for index = 1, count do found[index] = ARGV[at + index] end
    at = at + count
    return found
end

local now = clock(take())
local has_memory, has_metadata = take() == '1', take() == '1'
local fields = redis.call('HMGET', KEYS[1], 'record', has_memory and 'memory' or '-', has_metadata and 'metadata' or '-')
if not fields[1] then return {now, false} end
local names = take_all()
local keys = #names > 0 and redis.call('HMGET', KEYS[2], unpack(names)) or {}
if #KEYS == 2 then return {now, fields[1], keys, fields[2], fields[3]} end

local runs = take_all()
for index, run in ipairs(runs) do runs[index] = with_input(KEYS[6], redis.call('HGET', KEYS[5], run)) end
local calls = take_all()
for index, seq in ipairs(calls) do calls[index] = with_bodies(KEYS[6], redis.call('HGET', KEYS[3], seq)) end
local equal = take_all()
for index, name in ipairs(equal) do equal[index] = redis.call('HGET', KEYS[4], name) end
local steps = take_all()
for index, name in ipairs(steps) do
    local seq = redis.call('HGET', KEYS[4], name)
    steps[index] = with_bodies(KEYS[6], seq and redis.call('HGET', KEYS[3], seq))
end
local events = {}
for _, seq in ipairs(take_all()) do
    local row = event(KEYS[6], tonumber(seq))
    if row then
        events[#events + 1] = {tonumber(seq), row}
        local back = redis.call('HGET', KEYS[4], 't' .. seq)
        for other in (back or ''):gmatch('%d+') do
            local taking = event(KEYS[6], tonumber(other))
            if taking then events[#events + 1] = {tonumber(other), taking} end -- else a tombstone's, half erased
        end
    end
end
local pieces = {}
for index = 7, #KEYS do pieces[index - 6] = redis.call('LRANGE', KEYS[index], 0, -1) end
return {now, fields[1], keys, fields[2], fields[3], runs, calls, equal, steps, events, pieces}

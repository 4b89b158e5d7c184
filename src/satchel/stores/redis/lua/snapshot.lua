#!lua flags=no-writes
-- One session in one snapshot: the record, and the newest of each kind.
-- KEYS: 1 session, 2 events, 3 messages, 4 what is newest, 5 calls, 6 their order, 7 runs, 8 their order.
-- ARGV: the clock, whether memory and metadata are wanted, how many messages, calls and runs.
local now = clock(ARGV[1])
local fields = redis.call(
    'HMGET', KEYS[1], 'record', ARGV[2] == '1' and 'memory' or '-', ARGV[3] == '1' and 'metadata' or '-'
)
if not fields[1] then return {now, false} end
local messages, seqs = page({events = KEYS[2], newest = KEYS[4]}, {
    seqs = KEYS[3], after = 0, before = math.huge, newest_first = true, with_retracted = false, limit = tonumber(ARGV[4]),
    budget = math.huge, kind = '', run = ''
})
local function newest(order, rows, count, complete)
    local found = {}
    if count == 0 then return found end
    for index, name in ipairs(redis.call('ZREVRANGE', order, 0, count - 1)) do
        found[index] = {name, complete(KEYS[2], redis.call('HGET', rows, name))}
    end
    return found
end
return {
    now, fields[1], fields[2], fields[3], messages, seqs,
    newest(KEYS[6], KEYS[5], tonumber(ARGV[5]), with_bodies), newest(KEYS[8], KEYS[7], tonumber(ARGV[6]), with_input)
}

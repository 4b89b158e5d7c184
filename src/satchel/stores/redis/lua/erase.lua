#!lua flags=allow-oom
-- Rows of a tombstone, at most so many; answers how many, and the streams that are left.
-- KEYS: 1 session, then lists, hashes and sorted sets of rows: 2 events, 3 messages, 4 idempotency records, 5 calls, 6 their order,
-- 7 what is newest, 8 runs, 9 their order, 10 streams, then pieces of streams. ARGV: limit, then the streams whose pieces these are.
local limit = tonumber(ARGV[1])
local record = redis.call('HGET', KEYS[1], 'record')
if not record or cjson.decode(record).status ~= 'DELETED' then return {0} end
local erased = 0
local function erase_list(key)
    local gone = limit > erased and redis.call('RPOP', key, limit - erased)
    if gone then erased = erased + #gone end
end
local function erase_fields(key, remove, width, scan)
    if limit <= erased then return end
    local names = {}
    local cursor = '0'
    repeat
        local answer = redis.call(scan, key, cursor, 'COUNT', limit - erased)
        cursor = answer[1]
        for index = 1, #answer[2], width do names[#names + 1] = answer[2][index] end
    until cursor == '0' or #names >= limit - erased
    local count = math.min(#names, limit - erased)
    for start = 1, count, 1000 do
        erased = erased + redis.call(remove, key, unpack(names, start, math.min(start + 999, count)))
    end
end
-- The keys go first: a retry that is still answered finds all that it was answered with.
erase_fields(KEYS[4], 'HDEL', 2, 'HSCAN')
erase_list(KEYS[2])
erase_list(KEYS[3])
for index = 2, #ARGV do
    local key = KEYS[9 + index]
    erase_list(key)
    if redis.call('EXISTS', key) == 0 then redis.call('SREM', KEYS[10], ARGV[index]) end
end
erase_fields(KEYS[5], 'HDEL', 2, 'HSCAN')
erase_fields(KEYS[6], 'ZREM', 2, 'ZSCAN')
erase_fields(KEYS[7], 'HDEL', 2, 'HSCAN')
erase_fields(KEYS[8], 'HDEL', 2, 'HSCAN')
erase_fields(KEYS[9], 'ZREM', 2, 'ZSCAN')
return {erased}

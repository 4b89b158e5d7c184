#!lua
-- One change of one session, whole or not at all: its rows, its entries in its bucket's queues and lists. All that can fail
-- comes before the first write, for a script that errs midway keeps what it wrote.
--
-- KEYS: 1 session, 2 events, 3 messages, 4 idempotency records, 5 the user's list, 6 the tenant's list. For more than an
-- append also: 7 calls, 8 their order, 9 what is newest, 10 runs, 11 their order, 12 ready, 13 sweep, 14 leases, 15 their
-- clocks, 16 streams, 17 all sessions; then the pieces of each stream that the change names; then, if the session's user changes, the
-- list of the one before.
-- Answers: the clock, at least 1 (applied), 0 (stale), -1 (cannot be stored), -2 (needs all keys), -3 (held for somebody else), or the
-- user in whose list the session stands (needs that key).
local at = 0
local function take()
    at = at + 1
    return ARGV[at]
end
local function take_number() return tonumber(take()) end
-- The next arguments are a number of groups of `width`, with that number before them: where they begin, and end.
local function take_list(width)
    local count = take_number()
    local first = at + 1
    at = at + count * width
    return first, at
end

local base, not_after, given, holder, channel, hint = take(), take(), take(), take(), take(), take()
local revision, record, entries, updated_at, session, ref = take(), take(), take(), take(), take(), take()
local has_old_list = take() == '1'
local memory, metadata = take(), take()
local now = clock(given)
local is_full = #KEYS > 6

local kept = redis.call('HMGET', KEYS[1], 'revision', 'entries', 'held')
if (kept[1] or '') ~= base then return 0 end
if kept[3] then
    local until_at, by = kept[3]:match('^(%d+) (.*)$')
    if by ~= holder and now < tonumber(until_at) then return -3 end
end
if not_after ~= '' and now >= tonumber(not_after) then return 0 end

local unseen_first, unseen_last = take_list(1)
for first = unseen_first, unseen_last, 1000 do
    for _, found in ipairs(redis.call('HMGET', KEYS[4], unpack(ARGV, first, math.min(first + 999, unseen_last)))) do
        if found then return 0 end
    end
end
local keys_first, keys_last = take_list(2)
local first_seq = take_number()
local events_first, events_last = take_list(1)
local messages_first, messages_last = take_list(1)
if events_last >= events_first and redis.call('LLEN', KEYS[2]) ~= first_seq - 1 then return -1 end

local before = kept[2] and cmsgpack.unpack(kept[2])
local is_moved = kept[2] ~= entries
if is_moved then
    if not is_full then return -2 end
    if before and before[2] and before[1] ~= cmsgpack.unpack(entries)[1] and not has_old_list then return before[1] end
end
redis.call('LLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('ZCARD', KEYS[6])
if is_full then
    redis.call('HLEN', KEYS[7])
    redis.call('ZCARD', KEYS[8])
    redis.call('HLEN', KEYS[9])
    redis.call('HLEN', KEYS[10])
    redis.call('ZCARD', KEYS[11])
    redis.call('ZCARD', KEYS[12])
    redis.call('ZCARD', KEYS[13])
    redis.call('ZCARD', KEYS[14])
    redis.call('HLEN', KEYS[15])
    redis.call('SCARD', KEYS[16])
    redis.call('ZCARD', KEYS[17])
    for index = 18, #KEYS - (has_old_list and 1 or 0) do redis.call('LLEN', KEYS[index]) end
    if has_old_list then redis.call('ZCARD', KEYS[#KEYS]) end
end

-- From here on everything is written.

redis.call('HSET', KEYS[1], 'revision', revision, 'record', record, 'entries', entries)
if kept[3] then redis.call('HDEL', KEYS[1], 'held') end
for field, body in pairs({memory = memory, metadata = metadata}) do
    if body == '=' then
        redis.call('HDEL', KEYS[1], field)
    elseif body ~= '' then
        redis.call('HSET', KEYS[1], field, body:sub(2))
    end
end

local function write_all(command, key, first, last)
    for start = first, last, 1000 do
        redis.call(command, key, unpack(ARGV, start, math.min(start + 999, last)))
    end
end
write_all('HSET', KEYS[4], keys_first, keys_last)
write_all('RPUSH', KEYS[2], events_first, events_last)
write_all('RPUSH', KEYS[3], messages_first, messages_last)

local after = before
if is_moved then after = cmsgpack.unpack(entries) end
local is_listed = after[2]
if is_moved and before then
    if before[2] and (not is_listed or before[1] ~= after[1]) then
        redis.call('ZREM', has_old_list and KEYS[#KEYS] or KEYS[5], session)
        redis.call('ZREM', KEYS[6], session)
    end
    if before[3] then
        redis.call('ZREM', KEYS[12], '*' .. ref, 'a' .. before[3]:gsub('%z', '\0\255') .. '\0\1' .. ref)
    end
    if before[4] then redis.call('ZREM', KEYS[13], ref) end
    if before[5] then
        redis.call('ZREM', KEYS[14], ref)
        if before[6] ~= 'server' then redis.call('HDEL', KEYS[15], ref) end
    end
end
if is_listed then
    redis.call('ZADD', KEYS[5], updated_at, session)
    redis.call('ZADD', KEYS[6], updated_at, session)
end
if not before then redis.call('ZADD', KEYS[17], 0, ref) end
if is_moved then
    if after[3] then
        redis.call('ZADD', KEYS[12], 0, '*' .. ref, 0, 'a' .. after[3]:gsub('%z', '\0\255') .. '\0\1' .. ref)
    end
    if after[4] then redis.call('ZADD', KEYS[13], after[4], ref) end
    if after[5] then
        redis.call('ZADD', KEYS[14], after[5], ref)
        if after[6] ~= 'server' then redis.call('HSET', KEYS[15], ref, after[6]) end
    end
end

if is_full then
    -- What was taken back: by which seqs.
    local first, last = take_list(2)
    for index = first, last, 2 do
        local name = 't' .. ARGV[index]
        local others = redis.call('HGET', KEYS[9], name)
        redis.call('HSET', KEYS[9], name, others and others .. ',' .. ARGV[index + 1] or ARGV[index + 1])
    end
    first, last = take_list(2)
    for index = first, last, 2 do
        redis.call('HSET', KEYS[7], ARGV[index], ARGV[index + 1])
        redis.call('ZADD', KEYS[8], ARGV[index], ARGV[index])
    end
    first, last = take_list(2)
    for index = first, last, 2 do
        local other = redis.call('HGET', KEYS[9], ARGV[index])
        if not other or tonumber(other) < tonumber(ARGV[index + 1]) then
            redis.call('HSET', KEYS[9], ARGV[index], ARGV[index + 1])
        end
    end
    first, last = take_list(3)
    for index = first, last, 3 do
        redis.call('HSET', KEYS[10], ARGV[index], ARGV[index + 2])
        redis.call('ZADD', KEYS[11], ARGV[index + 1], ARGV[index])
    end
    first, last = take_list(2)
    for index = first, last, 2 do
        redis.call('DEL', KEYS[tonumber(ARGV[index])])
        redis.call('SREM', KEYS[16], ARGV[index + 1])
    end
    first, last = take_list(3)
    for index = first, last, 3 do
        redis.call('SADD', KEYS[16], ARGV[index + 1])
        redis.call('RPUSH', KEYS[tonumber(ARGV[index])], ARGV[index + 2])
    end
end

if channel ~= '' then redis.pcall('SPUBLISH', channel, hint) end -- an account may lack the right: a hint costs time, never data
return math.max(now, 1)

#!lua flags=no-writes
-- Pieces of one streamed message, from the one that holds the character at an offset on.
-- KEYS: 1 session, 2 pieces. ARGV: the clock, offset, limit.
local now = clock(ARGV[1])
local record = redis.call('HGET', KEYS[1], 'record')
if not record then return {now, false} end
local offset, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
if limit <= 0 then return {now, record, {}} end
local low, high = 0, redis.call('LLEN', KEYS[2])
while low < high do
    local middle = math.floor((low + high) / 2)
    local fields = head(redis.call('LINDEX', KEYS[2], middle))
    if fields and fields[1] <= offset then low = middle + 1 else high = middle end
end
local first = math.max(0, low - 1)
return {now, record, redis.call('LRANGE', KEYS[2], first, first + limit - 1)}

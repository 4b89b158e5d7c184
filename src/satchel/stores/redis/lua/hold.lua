#!lua
-- Keeps a session for one writer for a moment, so that its next commit is not overtaken.
-- KEYS: 1 session. ARGV: the clock, who, for how many microseconds. Answers 1 if it is held for that writer now.
local now = clock(ARGV[1])
local kept = redis.call('HMGET', KEYS[1], 'revision', 'held')
if not kept[1] then return 1 end
if kept[2] then
    local until_at, by = kept[2]:match('^(%d+) (.*)$')
    if by ~= ARGV[2] and now < tonumber(until_at) then return 0 end
end
redis.call('HSET', KEYS[1], 'held', number(now + tonumber(ARGV[3])) .. ' ' .. ARGV[2])
return 1

#!lua
-- Writes something behind what a decision saw, so that whoever waits until replicas have it knows that they have that too.
-- KEYS: 1 session, 2 the bucket's fence. ARGV: the session's revision and updated_at as they were seen, or '' where there was none.
-- Answers 0 if it is not so any more.
local kept = redis.call('HMGET', KEYS[1], 'revision', 'record')
if (kept[1] or '') ~= ARGV[1] then return 0 end
if kept[2] and not kept[2]:find('"updated_at":' .. ARGV[2], 1, true) then return 0 end
redis.call('INCR', KEYS[2])
return 1

#!lua
-- Compare and set. KEYS: 1 settings. ARGV: name, base revision, value. Answers what is kept then: revision and value in one text.
local kept = redis.call('HGET', KEYS[1], ARGV[1])
local revision = kept and kept:match('^%d+') or ''
if revision ~= ARGV[2] then return kept end
kept = number((tonumber(revision) or 0) + 1) .. ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], kept)
return kept

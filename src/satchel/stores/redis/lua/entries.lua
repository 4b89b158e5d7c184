#!lua flags=no-writes
-- Of each bucket's sorted set of entries, all of one score, at most so many between two bounds, in the order of their bytes.
-- KEYS: the sorted sets. ARGV: from, to, limit. Answers a list for each.
local found = {}
for index, key in ipairs(KEYS) do
    found[index] = redis.call('ZRANGEBYLEX', key, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
end
return found

#!lua flags=no-writes
-- Entries of the ready queues of buckets, at most so many of each, in the order of their bytes.
-- KEYS: ready queues. ARGV: from, to, limit.
local found = {}
for index, key in ipairs(KEYS) do
    for _, entry in ipairs(redis.call('ZRANGEBYLEX', key, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
        found[#found + 1] = entry
    end
end
return found

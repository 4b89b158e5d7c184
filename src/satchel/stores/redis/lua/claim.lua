#!lua
-- Claims an empty database. KEYS: 1 the schema's version. ARGV: the version. What is kept is the version, and since when.
local time = redis.call('TIME')
return redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. time[1] .. string.format('%06d', time[2]), 'NX')

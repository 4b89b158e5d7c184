#!lua flags=no-writes
-- What is due in buckets: sweep_at has come, or a lease is over; at most so many of each bucket, the first by their bytes.
-- KEYS: of each bucket sweep, leases, and the clocks of leases that are not the server's. ARGV: the clock, the clock of leases,
-- its name, after, limit. Answers a list for each bucket.
local now = clock(ARGV[1])
local lease_now = ARGV[2] ~= '' and tonumber(ARGV[2]) or now
local name, after, limit = ARGV[3], ARGV[4], tonumber(ARGV[5])

-- Strings compare by the server's locale; entries by their bytes.
local function is_less(one, other)
    local shared = math.min(#one, #other)
    for index = 1, shared do
        local left, right = one:byte(index), other:byte(index)
        if left ~= right then return left < right end
    end
    return #one < #other
end

local found = {}
for index = 1, #KEYS, 3 do
    local entries, seen = {}, {}
    local function add(entry)
        if not seen[entry] and (after == '' or is_less(after, entry)) then
            seen[entry] = true
            entries[#entries + 1] = entry
        end
    end
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[index], '-inf', number(now))) do add(entry) end
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[index + 1], '-inf', number(lease_now))) do add(entry) end
    if name ~= 'server' or redis.call('HLEN', KEYS[index + 2]) > 0 then
        for _, entry in ipairs(redis.call('ZRANGE', KEYS[index + 1], 0, -1)) do
            if (redis.call('HGET', KEYS[index + 2], entry) or 'server') ~= name then add(entry) end
        end
    end
    if #entries > limit then
        table.sort(entries, is_less)
    end
    found[(index + 2) / 3] = {unpack(entries, 1, math.min(#entries, limit))}
end
return found

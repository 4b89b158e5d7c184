#!lua flags=no-writes
-- A page of tool calls, or of runs: rows of a hash in the order of a sorted set, filtered by fields of their heads.
-- KEYS: 1 session, 2 order, 3 rows, 4 events.
-- ARGV: 'call' or 'run', the clock, after, before, newest first, limit, how many to look at, one name (of a run), and then
-- pairs: a field's place in the head, and its value; 'open' or 'ended' for a status.
local what, now = ARGV[1], clock(ARGV[2])
local kept = redis.call('HMGET', KEYS[1], 'record', 'revision')
if not kept[1] then return {now, false} end
local after, before, is_falling = '(' .. ARGV[3], ARGV[4] == '' and '+inf' or '(' .. ARGV[4], ARGV[5] == '1'
local limit, budget, only = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local complete = what == 'call' and with_bodies or with_input

local function is_wanted(row)
    if #ARGV == 8 then return true end
    local fields = head(row)
    if not fields then return false end
    for index = 9, #ARGV, 2 do
        local found, value = fields[tonumber(ARGV[index])], ARGV[index + 1]
        if what == 'call' and ARGV[index] == '5' then
            if (found == 'started') ~= (value == 'open') then return false end
        elseif found ~= value then
            return false
        end
    end
    return true
end

local found, came_to, offset = {}, false, 0
while #found < limit do
    if budget <= 0 then return {now, kept[1], kept[2], found, came_to and redis.call('ZSCORE', KEYS[2], came_to)} end
    local names
    local size = math.min(math.max(limit - #found, 16), 1000, budget)
    if only ~= '' then
        local at = redis.call('ZSCORE', KEYS[2], only)
        local low, high = tonumber(ARGV[3]), ARGV[4] == '' and math.huge or tonumber(ARGV[4])
        names = at and tonumber(at) > low and tonumber(at) < high and {only} or {}
    elseif is_falling then
        names = redis.call('ZREVRANGEBYSCORE', KEYS[2], before, after, 'LIMIT', offset, size)
    else
        names = redis.call('ZRANGEBYSCORE', KEYS[2], after, before, 'LIMIT', offset, size)
    end
    offset = offset + #names
    budget = budget - #names
    for _, name in ipairs(names) do
        local row = redis.call('HGET', KEYS[3], name)
        if row and is_wanted(row) then
            if #found < limit then found[#found + 1] = {name, complete(KEYS[4], row)} end
        end
        came_to = name
    end
    if #names < size then break end
end
return {now, kept[1], kept[2], found, false}

-- Stands at the head of every script. How rows lie in their keys is told in names.py and rows.py.

-- The server's clock in microseconds, at this moment; or the one that was given.
local function clock(given)
    if given ~= '' then return tonumber(given) end
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- A row is the length of its head, its head (a MessagePack array), and a body. nil where there is none that can be read.
local function head(row)
    if not row or #row < 4 then return nil end
    local size = struct.unpack('>I4', row)
    local ok, fields = pcall(cmsgpack.unpack, row:sub(5, 4 + size))
    if ok and type(fields) == 'table' then return fields end
    return nil
end

local function number(value)
    return string.format('%.0f', value)
end

-- The event of a seq: events are a list, and seqs have no gap.
local function event(events, seq)
    return seq and seq > 0 and redis.call('LINDEX', events, seq - 1) or false
end

-- A call with the events that hold its bodies, or false.
local function with_bodies(events, row)
    if not row then return false end
    local fields = head(row)
    if not fields then return {row, false, false} end
    return {row, event(events, fields[1]), event(events, fields[10])}
end

-- A run with the message that its input is by now, or false.
local function with_input(events, row)
    if not row then return false end
    local fields = head(row)
    return {row, fields and event(events, fields[5]) or false}
end

-- Events of these seqs, which rise or fall: near ones in one read.
local function events_at(events, seqs)
    local count = #seqs
    if count == 0 then return {} end
    local low, high = math.min(seqs[1], seqs[count]), math.max(seqs[1], seqs[count])
    local found = {}
    if high - low < 2 * count + 16 then
        local span = redis.call('LRANGE', events, low - 1, high - 1)
        for index = 1, count do found[index] = span[seqs[index] - low + 1] or false end
    else
        for index = 1, count do found[index] = event(events, seqs[index]) end
    end
    return found
end

-- Of these seqs those that were taken back, as a set.
local function taken_back(newest, seqs)
    local back = {}
    for start = 1, #seqs, 1000 do
        local names = {}
        for index = start, math.min(start + 999, #seqs) do names[#names + 1] = 't' .. number(seqs[index]) end
        local found = redis.call('HMGET', newest, unpack(names))
        for index = 1, #names do
            if found[index] then back[seqs[start + index - 1]] = true end
        end
    end
    return back
end

-- How many of the list of seqs, which rise, are at most this.
local function count_up_to(seqs, bound)
    local low, high = 0, redis.call('LLEN', seqs)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if tonumber(redis.call('LINDEX', seqs, middle)) <= bound then low = middle + 1 else high = middle end
    end
    return low
end

-- A page of events: those of the list of seqs (messages), or all; after < seq < before. Looks at no more than `budget`.
-- Gives the rows, their seqs, which were taken back, and, when the budget ended first, the seq it came to.
local function page(keys, wanted)
    local first, last
    local total = redis.call('LLEN', keys.events)
    local before = math.min(wanted.before, total + 1)
    if wanted.seqs then
        first, last = count_up_to(wanted.seqs, wanted.after) + 1, count_up_to(wanted.seqs, before - 1)
    else
        first, last = math.max(wanted.after, 0) + 1, before - 1
    end
    local rows, shown, back = {}, {}, {}
    local budget = wanted.budget
    while first <= last and #rows < wanted.limit do
        if budget <= 0 then return rows, shown, back, wanted.came_to end
        local size = math.min(last - first + 1, math.max(wanted.limit - #rows, wanted.is_filtered and 256 or 16), 1000, budget)
        budget = budget - size
        local low, high = first, first + size - 1
        if wanted.newest_first then
            low, high = last - size + 1, last
            last = low - 1
        else
            first = high + 1
        end
        local seqs = {}
        if wanted.seqs then
            for index, seq in ipairs(redis.call('LRANGE', wanted.seqs, low - 1, high - 1)) do seqs[index] = tonumber(seq) end
        else
            for seq = low, high do seqs[#seqs + 1] = seq end
        end
        if wanted.newest_first then
            for index = 1, math.floor(#seqs / 2) do
                seqs[index], seqs[#seqs + 1 - index] = seqs[#seqs + 1 - index], seqs[index]
            end
        end
        local found, gone = events_at(keys.events, seqs), taken_back(keys.newest, seqs)
        for index, seq in ipairs(seqs) do
            if #rows == wanted.limit then break end
            local row = found[index]
            local is_wanted = row and (wanted.with_retracted or not gone[seq])
            if is_wanted and wanted.is_filtered then
                local fields = head(row)
                is_wanted = fields and (wanted.kind == '' or fields[3] == wanted.kind)
                    and (wanted.run == '' or fields[6] == wanted.run)
            end
            if is_wanted then
                rows[#rows + 1] = row
                shown[#shown + 1] = seq
                if gone[seq] then back[#back + 1] = seq end
            end
        end
        wanted.came_to = seqs[#seqs]
    end
    return rows, shown, back, false
end

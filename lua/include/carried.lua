    -- The state of another algorithm: what still counts, for each quota that it was charged under. For where
    -- the key holds what the script itself did not write.
    --
    -- Uses   now, MODULUS, TEN_YEARS; raw: what GET says, a table if it is no string; carried, declared and nil
    -- Gives  carried[n] = { max, window, max, units }, the fullest first; carried.serial, carried.newest,
    --        carried.begun, and carried.pulled if the clock went back behind newest
    --        Nil if the key holds anything else.
    do
-- include: formats
-- include: pace
      local found
      local function add(max, window, units)
        found[#found + 1] = { max, window, max, math.max(units, 0) }
      end
      local function head(serial, newest, begun)
        found = found or {}
        found.serial, found.newest, found.pulled = serial, newest, newest > now
        if found.pulled then
          found.newest, begun = now, math.max(begun, newest + 1)
        end
        found.begun = math.max(begun, found.newest + 1)
      end
      -- How much of a list of (score or stamp, running total) lies inside the window.
      local function inside(list, from, number, window, base, total)
        local low, high = 0, number
        while low < high do
          local middle = math.floor((low + high) / 2)
          local stamp, with = struct.unpack(SECTIONS.entry, list, from + SECTIONS.entry_size * middle)
          if stamp <= now - window then
            low, base = middle + 1, with
          else
            high = middle
          end
        end
        return (total - base) % MODULUS
      end

      if type(raw) ~= 'string' then
        -- The log.
        local set = redis.pcall('ZRANGE', KEYS[1], '-1', '-1')
        local member = set[1]
        if not set.err then
          local mark, total, _, _, _, stamp, horizon, units, serial
          local has_more = member and #member == LOG.entry_size + LOG.more_size
          if member and (has_more or #member == LOG.entry_size) then
            mark, total, _, _, _, stamp, horizon, units, serial = struct.unpack(LOG.entry, member)
          end
          found = {}
          if mark == LOG.mark and total < MODULUS and horizon <= TEN_YEARS then
            local long_window, long_units, long_until, begun = 0, 0, 0, 0
            if has_more then
              long_window, long_units, long_until, begun = struct.unpack(LOG.more, member, LOG.entry_size + 1)
            end
            head(serial, stamp, begun)
            if long_window > 0 then
              if found.pulled and long_until > now + long_window then long_until = now + long_window end
            end
            if now < found.newest + horizon or now < long_until then
              local function used(window)
                local after = '(' .. string.format('%.0f', now - window)
                local first = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'LIMIT', '0', '1')[1]
                if not first or #first < LOG.entry_size then return 0 end
                local _, _, base = struct.unpack(LOG.entry, first)
                return (total - base) % MODULUS
              end
              if now < found.newest + horizon then add(units, horizon, used(horizon)) end
              if long_until > now then add(long_units, long_window, used(long_window)) end
            end
          end
        end
      elseif #raw > STATE.head_size and string.byte(raw) >= SECTIONS.mark and string.byte(raw) <= FIXED.mark then
        local mark, serial, newest = struct.unpack(STATE.head, raw)
        local at, latest = STATE.head_size + 1, 0
        found = { pulled = newest > now }
        while at + FIXED.size - 1 <= #raw do
          local max, window, burst, life, needed, begun, units, _
          if mark == SECTIONS.mark then
            if at + SECTIONS.size - 1 > #raw then break end
            local base, number
            max, window, needed, begun, _, base, number = struct.unpack(SECTIONS.tally, raw, at)
            life = window
            local entries = at + SECTIONS.size
            at = entries + SECTIONS.entry_size * number
            if at - 1 > #raw then break end
            local total = base
            if number > 0 then _, total = struct.unpack(SECTIONS.entry, raw, at - SECTIONS.entry_size) end
            units = inside(raw, entries, number, window, base, total)
          elseif mark == BUCKET.mark then
            if at + BUCKET.size - 1 > #raw then break end
            local start
            max, window, burst, needed, begun, start, units, at = struct.unpack(BUCKET.tally, raw, at)
            local still = start == 0 and units > 0
            local pace_units, pace_micros = pace_of(max, window)
            life = window
            if burst > max and not still then
              -- A burst above max takes longer than the window to drain.
              max, life = burst, time_for(burst, pace_units, pace_micros)
              window = life
            end
            if not still then
              -- Nothing that has drained drains again: what counts now, counts as of the last take.
              local now_drained = drained(math.max(now - start, 0), pace_units, pace_micros)
              if not found.pulled and now_drained >= units then
                units = 0
              else
                units = units - drained(math.max(newest - start, 0), pace_units, pace_micros)
              end
            end
          else
            local start
            max, window, needed, begun, start, units, at = struct.unpack(FIXED.tally, raw, at)
            life = window
            if start + window <= now then units = 0 end
          end
          if window == 0 or needed > newest + 2 * TEN_YEARS then break end
          if found.pulled and needed > now + life then needed = now + life end
          if begun > latest then latest = begun end
          if needed > now then add(max, window, units) end
        end
        head(serial, newest, latest)
      end
      if found then
        table.sort(found, function(a, b)
          if a[4] ~= b[4] then return a[4] > b[4] end
          return a[1] > b[1]
        end)
        -- Where nothing counts, nothing is known.
        if found[1] and found[1][4] == 0 then
          for at = #found, 1, -1 do found[at] = nil end
        end
      end
      carried = found
    end

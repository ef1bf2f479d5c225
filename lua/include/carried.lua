    -- The state of another algorithm: what still counts, for each quota that it was charged under.
    --   carried[n] = { max, window, burst, units }, the fullest first; carried.serial, carried.newest,
    --   and carried.pulled if the clock went back behind newest
    -- Nil if the key holds anything else.
    do
-- include: pace
      local found
      local function add(max, window, burst, units)
        if units > 0 then found[#found + 1] = { max, window, burst, units } end
      end
      local function head(serial, newest)
        found = { serial = serial, newest = newest, pulled = newest > now }
        if found.pulled then found.newest = now end
      end
      -- How much of a list of (score or stamp, running total) lies inside the window.
      local function inside(list, from, number, window, base, total)
        local low, high = 0, number
        while low < high do
          local middle = math.floor((low + high) / 2)
          local stamp, with = struct.unpack('>I7I7', list, from + 14 * middle)
          if stamp <= now - window then
            low, base = middle + 1, with
          else
            high = middle
          end
        end
        return (total - base) % 4503599627370496
      end

      if type(raw) ~= 'string' then
        -- The log.
        local set = redis.pcall('ZRANGE', KEYS[1], '-1', '-1')
        local member = set[1]
        if not set.err then
          found = {}
          local mark, total, _, _, _, stamp, horizon, units, serial
          if member and (#member == 57 or #member == 78) then
            mark, total, _, _, _, stamp, horizon, units, serial = struct.unpack('>BI7I7I7I7I7I7I7I7', member)
          end
          if mark == 247 and total < 4503599627370496 and horizon <= 315360000000000 then
            head(serial, stamp)
            local long_window, long_units, long_until = 0, 0, 0
            if #member == 78 then
              long_window, long_units, long_until = struct.unpack('>I7I7I7', member, 58)
              if found.pulled and long_until > now + long_window then long_until = now + long_window end
            end
            if now < found.newest + horizon or now < long_until then
              local function used(window)
                local after = '(' .. string.format('%.0f', now - window)
                local first = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'LIMIT', '0', '1')[1]
                if not first or #first < 57 then return 0 end
                local _, _, base = struct.unpack('>BI7I7', first)
                return (total - base) % 4503599627370496
              end
              add(units, horizon, units, used(horizon))
              if long_until > now then add(long_units, long_window, long_units, used(long_window)) end
            end
          end
        end
      elseif #raw > 22 and string.byte(raw) >= 248 and string.byte(raw) <= 250 then
        local mark, serial, since, newest = struct.unpack('>BI7I7I7', raw)
        head(serial, newest)
        local at = 23
        while at + 34 <= #raw do
          local max, window, burst, life, needed, units
          if mark == 248 then
            local resolution, base, number
            max, window, needed, resolution, base, number = struct.unpack('>I7I7I7I7I7I2', raw, at)
            burst, life = max, window
            at = at + 37 + 14 * number
            if at - 1 > #raw then break end
            local total = base
            if number > 0 then total = struct.unpack('>I7', raw, at - 7) end
            units = inside(raw, at - 14 * number, number, window, base, total)
          elseif mark == 249 then
            if at + 41 > #raw then break end
            local start
            max, window, burst, needed, start, units, at = struct.unpack('>I7I7I7I7I7I7', raw, at)
            local pace_units, pace_micros = pace_of(max, window)
            life = time_for(math.max(max, burst), pace_units, pace_micros)
            local drains = found.pulled and newest or now
            if drains > start then units = units - drained(drains - start, pace_units, pace_micros) end
          else
            local start
            max, window, needed, start, units, at = struct.unpack('>I7I7I7I7I7', raw, at)
            burst, life = max, window
            if start + window <= now then units = 0 end
          end
          if found.pulled and needed > now + life then needed = now + life end
          if needed > now then add(max, window, burst, units) end
        end
      end
      if found then
        table.sort(found, function(a, b)
          if a[4] ~= b[4] then return a[4] > b[4] end
          if a[1] ~= b[1] then return a[1] > b[1] end
          return a[3] > b[3]
        end)
      end
      carried = found
    end

  -- Reads the question about a key, up to its quotas. Little-endian; numbers have 7 bytes unless it
  -- says otherwise.
  --
  --   1 byte      the number of quotas, and 64 if some of them only count, and 128 if there is a
  --               lease; 0 repeats the quotas, the lease and the expiry of the key before
  --   2 bytes     the number of rows
  --   the first row
  --   each quota  as the algorithm reads it; those that limit come first
  --   1 byte      the number of quotas that limit, if the others only count: these are charged
  --               and deny nothing; and 128 if one of them counts no less than any other would
  --   lease       microseconds: how much later than its charge a unit may be used
  --   expiry      milliseconds: how long a charge counts at most, and two slices of time (see
  --               SLICE in `setup`)
  --   the other rows
  --
  -- A row: cost (0 only looks); 2 bytes: the number of takes; deadline in microseconds.
  --
  -- Uses   question, at: where it begins; read_quota(at) -> quota with its limit and life, at
  -- Gives  size: no answers yet; number_of_quotas, number_limiting, has_bound, quotas, limits, lease,
  --        expiry, slice, rows; of the first row cost, takes and deadline; at: where the second row
  --        begins
  do
    local number
    size = 0
    number, rows, cost, takes, deadline, at = unpack(QUESTION, question, at)
    if number > 0 then
      number_of_quotas, slice, lease = number % WITH_COUNTING, SLICE, 0
      for n = 1, number_of_quotas do
        quotas[n], at = read_quota(at)
        limits[n] = quotas[n].limit
        -- An expiry that is set less often lasts longer: by an eighth of its quota's life.
        if quotas[n].life / 16 > slice then slice = floor(quotas[n].life / 16) end
      end
      number_limiting, has_bound = number_of_quotas, false
      if number % WITH_LEASE > WITH_COUNTING then
        number_limiting, at = unpack('B', question, at)
        has_bound = number_limiting > 128
        number_limiting = number_limiting % 128
      end
      if number > WITH_LEASE then lease, at = unpack('<I7', question, at) end
      expiry, at = unpack('<I7', question, at)
      expiry_text = nil
    end
  end

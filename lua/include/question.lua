  -- Reads the question about a key. Little-endian; numbers have 7 bytes unless it says otherwise.
  --
  --   1 byte      the number of quotas; 0 repeats the quotas and the expiry of the key before
  --   each quota  as the algorithm reads it
  --   expiry      milliseconds: how long a charge counts at most, and two slices of time
  --   2 bytes     the number of rows
  --   each row    see `row`
  --
  -- Uses   question, at: where it begins; read_quota(at) -> quota with its limit, at
  -- Gives  number_of_quotas, quotas, limits, expiry, rows; at: where the first row begins
  do
    local number = byte(question, at)
    at = at + 1
    if number > 0 then
      number_of_quotas = number
      for n = 1, number do
        quotas[n], at = read_quota(at)
        limits[n] = quotas[n].limit
      end
      expiry, at = unpack('<I7', question, at)
      expiry_text = nil
    end
    rows, at = unpack('<I2', question, at)
  end

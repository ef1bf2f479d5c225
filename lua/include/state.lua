  -- Reads the state of an algorithm that keeps tallies: see `tallies`.
  --
  -- Uses   raw: a string or false; MARK, HEADER, HEADER_SIZE
  --        read_tally(raw, at, newest) -> tally, at   nil if it is broken
  --        count(tally, newest)                       units that count now
  -- Gives  serial, newest, tallies; is_live: whether anything counts
  tallies, serial, newest, is_live = nil, 0, now, false
  if raw and #raw > HEADER_SIZE and byte(raw) == MARK then
    local mark, from, tally = nil, HEADER_SIZE + 1, nil
    mark, serial, newest = unpack(HEADER, raw)
    tallies = mark and { false }
    local number_of_tallies = 0
    repeat
      tally, from = read_tally(raw, from, newest)
      if not tally or tally.window == 0 or tally.window > TEN_YEARS or tally.needed > newest + 2 * TEN_YEARS then
        tallies = nil
        break
      end
      local units = count(tally, newest)
      tally.used = units
      is_live = is_live or units > 0 and tally.needed > now
      number_of_tallies = number_of_tallies + 1
      tallies[number_of_tallies] = tally
    until from > #raw
  end
  if not tallies then tallies, serial, newest, is_live = {}, 0, now, false end

  -- Reads the state of an algorithm that keeps tallies: see `tallies`.
  --
  -- Uses   raw: a string or false; MARK, HEADER, HEADER_SIZE
  --        read_tally(raw, at, newest, spare) -> tally, at   nil if it is broken
  --        count(tally, newest)                       units that count now
  --        single, spare: tables that keys with one tally use one after the other
  -- Gives  serial, newest, tallies; is_live: whether anything counts
  tallies, serial, newest, is_live = nil, 0, now, false
  if raw and #raw > HEADER_SIZE and byte(raw) == MARK then
    local _, stored_serial, stored_newest = unpack(HEADER, raw)
    tallies, serial, newest = single, stored_serial, stored_newest
    local number_of_tallies, from = 0, HEADER_SIZE + 1
    repeat
      local tally
      tally, from = read_tally(raw, from, newest, number_of_tallies == 0 and spare)
      local is_ours = tally and tally.window > 0 and tally.window <= TEN_YEARS
      if not is_ours or tally.needed > newest + 2 * TEN_YEARS then
        tallies = nil
        break
      end
      local units = count(tally, newest)
      tally.used = units
      is_live = is_live or units > 0 and tally.needed > now
      number_of_tallies = number_of_tallies + 1
      if number_of_tallies == 2 then tallies = { single[1] } end
      tallies[number_of_tallies] = tally
    until from > #raw
  end
  if not tallies then tallies, serial, newest, is_live = {}, 0, now, false end

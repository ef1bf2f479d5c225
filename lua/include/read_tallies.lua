  -- Reads the state of an algorithm that keeps tallies: see `tallies`.
  --
  -- Uses   raw: a string or false; MARK, HEADER, HEADER_SIZE; LEASED_MARK or nil: that of a state
  --        with a lease behind its header
  --        read_tally(raw, at, charged_at, spare) -> tally, at   nil if it is damaged
  --        used_now(tally, charged_at)                           units that count now
  --        single, spare: tables that keys with one tally use one after the other; `spare` may be
  --        false
  -- Gives  serial, last_charge, tallies; anything_counts; lease_text: what the state says of a
  --        lease, or ''; reset_since: since when new tallies give takes back after a reset, or 0
  local tallies, serial, last_charge, anything_counts, lease_text = nil, 0, now, false, ''
  local first_byte = raw and #raw > HEADER_SIZE and byte(raw)
  if first_byte and (first_byte == MARK or first_byte == LEASED_MARK) then
    local _, stored_serial, stored_last_charge = unpack(HEADER, raw)
    tallies, serial, last_charge = single, stored_serial, stored_last_charge
    local number_of_tallies, from = 0, HEADER_SIZE + 1
    if first_byte == LEASED_MARK then
      from = from + LEASE_SIZE
      lease_text = sub(raw, HEADER_SIZE + 1, from - 1)
    end
    repeat
      local tally
      tally, from = read_tally(raw, from, last_charge, number_of_tallies == 0 and spare)
      local is_valid = tally and tally.window > 0 and tally.window <= TEN_YEARS
      if not is_valid or tally.needed_until > last_charge + 2 * TEN_YEARS then
        tallies = nil
        break
      end
      local units = used_now(tally, last_charge)
      tally.used = units
      anything_counts = anything_counts or units > 0 and tally.needed_until > now
      number_of_tallies = number_of_tallies + 1
      if number_of_tallies == 2 then tallies = { single[1] } end
      tallies[number_of_tallies] = tally
    until from > #raw
  end
  local _, reset_since = nil, 0
  if raw and #raw == RESET_SIZE and byte(raw) == RESET_MARK then _, reset_since = unpack(RESET, raw) end
  if not tallies then
    tallies, serial, last_charge, anything_counts, lease_text = {}, 0, now, false, ''
  end

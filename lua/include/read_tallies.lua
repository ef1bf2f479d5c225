  -- Reads the state of an algorithm that keeps tallies: see `tallies`.
  --
  -- Uses   raw: a string or false; MARK, HEADER, HEADER_SIZE; LEASED_MARK or nil: that of a state
  --        with a lease behind its header
  --        read_tally(raw, at, charged_at) -> tally, at   nil if it is damaged
  --        used_now(tally, charged_at)                    units that count now
  -- Gives  serial, last_charge, tallies; anything_counts; lease_text: what the state says of a
  --        lease, or ''; reset_since: since when new tallies give takes back after a reset, or 0
  local tallies, serial, last_charge, anything_counts, lease_text = {}, 0, now, false, ''
  local reset_since, _ = 0, nil
  local first_byte = raw and byte(raw)
  if first_byte == RESET_MARK and #raw == RESET_SIZE then
    _, reset_since = unpack(RESET, raw)
  elseif raw and #raw > HEADER_SIZE and (first_byte == MARK or first_byte == LEASED_MARK) then
    _, serial, last_charge = unpack(HEADER, raw)
    local from = HEADER_SIZE + 1
    if first_byte == LEASED_MARK then
      from = from + LEASE_SIZE
      lease_text = sub(raw, HEADER_SIZE + 1, from - 1)
    end
    repeat
      local tally
      tally, from = read_tally(raw, from, last_charge)
      local is_valid = tally and tally.window > 0 and tally.window <= TEN_YEARS
      if not is_valid or tally.needed_until > last_charge + 2 * TEN_YEARS then
        tallies, serial, last_charge, anything_counts, lease_text = {}, 0, now, false, ''
        break
      end
      tally.used = used_now(tally, last_charge)
      anything_counts = anything_counts or tally.used > 0 and tally.needed_until > now
      tallies[#tallies + 1] = tally
    until from > #raw
  end

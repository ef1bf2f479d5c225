  -- Reads the state of an algorithm that keeps counters: see `counter_states`.
  --
  -- Uses   raw: a string or false; own_mark; leased_mark or nil: that of a state with a lease
  --        behind its header
  --        read_counter(raw, at, charged_at) -> counter, at   nil if it is damaged
  --        used_now(counter, charged_at)                    units that count now
  -- Gives  serial, last_charge, counters; anything_counts; lease_text: what the state says of a
  --        lease, or ''; reset_since: since when new counters give takes back after a reset, or 0
  local counters, serial, last_charge, anything_counts, lease_text = {}, 0, now, false, ''
  local reset_since, _ = 0, nil
  local first_byte = raw and byte(raw)
  if first_byte == RESET_MARK and #raw == RESET_SIZE then
    _, reset_since = unpack(RESET, raw)
  elseif raw and #raw > HEADER_SIZE and (first_byte == own_mark or first_byte == leased_mark) then
    _, serial, last_charge = unpack(HEADER, raw)
    local from = HEADER_SIZE + 1
    if first_byte == leased_mark then
      from = from + LEASE_SIZE
      lease_text = sub(raw, HEADER_SIZE + 1, from - 1)
    end
    repeat
      local counter
      counter, from = read_counter(raw, from, last_charge)
      local is_valid = counter and counter.life > 0 and counter.life <= TEN_YEARS
      if not is_valid or counter.needed_until > last_charge + 2 * TEN_YEARS then
        counters, serial, last_charge, anything_counts, lease_text = {}, 0, now, false, ''
        break
      end
      counter.used = used_now(counter, last_charge)
      anything_counts = anything_counts or counter.used > 0 and counter.needed_until > now
      counters[#counters + 1] = counter
    until from > #raw
  end

-- include: joint_permits
  -- Decides takes over several counts in their usual case: one quota for each count, and
  -- keys that are as the usual case of one count wants them. Each key is read once, all takes are
  -- decided, and each key is written once, at the end: so what is not usual leaves all for the
  -- core.
  --
  -- Uses   question, at, values, now
  --        read_rule(from) -> rule with its limit
  --        load(key, raw, rule) -> state with used and serial; nil if it is not usual
  --        charge(state, units)
  --        wait_for(state, cost): microseconds until a cost fits that does not fit now; nil if that
  --                               is not usual
  --        reset_after(state): microseconds until nothing of it counts
  --        write(state) -> a table with err, if a command failed
  --        the same for permits: see `joint_permits`; as a cost they have the number of the holder
  -- Gives  the reply of the call, if all is usual; else replies: its head, and no values
  local states, rules, changed, costs, place, is_usual = {}, {}, {}, {}, 0, true
  while is_usual and place < #KEYS do
    -- The first record says how many counts there are. All have the same takes and deadline.
    local _, counts, _, takes, deadline = unpack(RECORD, question, at + place * RECORD_SIZE)
    local first, last, fitting, holder = place + 1, place + counts - JOINT, takes, nil
    is_usual = now <= deadline
    for n = first, last do
      local rule_from, _, cost = unpack(RECORD, question, at + (n - 1) * RECORD_SIZE)
      local rule, key = rules[rule_from], KEYS[n]
      if not rule then
        local read = string.byte(question, rule_from) == 0 and read_permits or read_rule
        rule = read(rule_from)
      end
      local state = states[key]
      if state == nil and rule.is_permits then
        state = load_permits(key, rule)
      elseif state == nil then
        state = load(key, values and values[n], rule)
      end
      if rule.is_permits and cost > 0 then holder, cost = cost, 1 end
      rules[rule_from], states[key], costs[n] = rule, state or false, cost
      is_usual = is_usual and state and state.rule == rule and cost > 0 and cost <= rule.limit
      if not is_usual then break end
      local room = rule.limit - state.used
      if cost * fitting > room then fitting = math.max(floor(room / cost), 0) end
    end
    for n = first, is_usual and last or 0 do
      local state, cost, answer = states[KEYS[n]], costs[n], ''
      local limit, wait = state.rule.limit, 0
      if fitting > 0 and not state.is_changed then
        state.key, state.is_changed = KEYS[n], true
        changed[#changed + 1] = state
      end
      if state.holders then
        if fitting > 0 then hold(state, holder) end
        answer = pack(ANSWER, fitting > 0 and ALLOWED or DENIED, 1, 0, state.used, 0)
      elseif fitting > 0 then
        charge(state, cost * fitting)
        answer = pack(ANSWER, ALLOWED, fitting, state.serial, limit - state.used, reset_after(state))
        if state.units and fitting > 1 then answer = answer .. pack('>I7', state.units) end
      end
      if fitting < takes and not state.holders then
        if state.used + cost > limit then wait = wait_for(state, cost) end
        is_usual = is_usual and wait
        answer = is_usual and answer .. pack(ANSWER, DENIED, takes - fitting, wait,
          math.max(limit - state.used, 0), reset_after(state))
      end
      replies[n + 1] = answer
    end
    place = last
  end
  for n = 1, is_usual and #changed or 0 do
    local written = (changed[n].holders and write_permits or write)(changed[n])
    if type(written) == 'table' and written.err then
      -- What is wrong with the server fails the first write. Nothing is written then, and the core
      -- says why.
      if n > 1 then return written end
      is_usual = false
      break
    end
  end
  if is_usual then return concat(replies) end
  replies, values = { replies[1] }, nil

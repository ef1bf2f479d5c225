  -- Reads the question about a key. Big-endian; numbers have 7 bytes unless it says otherwise. All
  -- questions of a call are one argument:
  --
  --   1 byte      the kind of call: 0; 1 if a key is named by more than one question; 2 if no rule
  --               has one quota and no lease. In the last two the usual case answers none. 3 if all
  --               takes are over several counts, each of one quota without a lease: see `joint`.
  --               4 if the keys may be held: behind them stand as many keys that say until when,
  --               and the usual case answers none
  --   2 bytes     where the records begin
  -- each rule:
  --   1 byte      the number of quotas that a take is charged to; those that limit come first
  --   1 byte      the number of quotas that limit: the others are charged and deny nothing
  --   1 byte      1 if one of the others counts no less than any other would, or 0
  --   lease       microseconds: how much later than its charge a unit may be used
  --   expiry      milliseconds: how long a charge counts at most, and two slices of time
  --   slice       microseconds: the expiry is set once in each slice of time
  --   each quota  as the algorithm reads it
  --               A rule of no quotas is of permits: its lease is one of a permit, in milliseconds,
  --               its slice is the number of the process, and behind it stands how many there are.
  --               Behind a rule whose record charges units owed stands for each quota that limits
  --               how many units may be used at most with those owed.
  -- a record for each key:
  --   2 bytes     where its rule begins
  --   2 bytes     the number of rows. The counts of a take over several follow one another, with the
  --               same takes and deadlines: the first says 32768 and how many they are, and the
  --               others 32768. 16385: it charges units owed
  --   the first row
  -- and then the other rows of all keys.
  --
  -- A row: cost (0 charges nothing); 2 bytes: the number of takes; deadline in microseconds.
  --
  -- Uses   question, records, place, holds; read_quota(at) -> quota with its limit and life, at
  -- Gives  size: no answers yet; owes; of units owed most; number_of_quotas, number_limiting,
  --        has_bound, quotas, limits, lease, expiry, slice, rows; of the first row cost, takes and
  --        deadline; of a take over several counts joint_first, joint_last, looks;
  --        held: for how many microseconds more the key is held, or nil
  local rule_from
  rule_from, rows, cost, takes, deadline = unpack(RECORD, question, records + (place - 1) * RECORD_SIZE)
  size = 0
  if rows > JOINT and joint_first ~= place then
    joint_first, joint_last, looks = place, place + rows - JOINT - 1, true
    fitting, joint_error = takes, nil
  end
  owes = rows == OWED + 1
  held = holds and tonumber(holds[place] or nil)
  held = held and held > now and held - now < TEN_YEARS and held - now or nil
  if rows >= JOINT or owes then rows = 1 end
  if rule_from ~= rule_known then
    local bounds, from
    number_of_quotas, number_limiting, bounds, lease, expiry, slice, from =
      unpack(RULE_HEAD, question, rule_from)
    local read = joint_last and rules_read[rule_from]
    for n = 1, number_of_quotas do
      if read then quotas[n] = read[n] else quotas[n], from = read_quota(from) end
      limits[n] = quotas[n].limit
    end
    -- The rules of several counts take turns.
    if joint_last and not read then rules_read[rule_from] = { _G.unpack(quotas, 1, number_of_quotas) } end
    if number_of_quotas == 0 then permits = unpack('>I7', question, from) end
    for n = 1, owes and number_limiting or 0 do most[n], from = unpack('>I7', question, from) end
    rule_known, has_bound, expiry_text = rule_from, bounds == 1, nil
  end

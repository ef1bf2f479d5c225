  -- Reads the question about a key. Big-endian; numbers have 7 bytes unless it says otherwise. All
  -- questions of a call are one argument:
  --
  --   1 byte      the kind of call: 0; 1 if a key is named by more than one question; 2 if no rule
  --               has one quota and no lease. In the last two the general part answers all
  --   2 bytes     where the records begin
  -- each rule:
  --   1 byte      the number of quotas that a take is charged to; those that limit come first
  --   1 byte      the number of quotas that limit: the others are charged and deny nothing
  --   1 byte      1 if one of the others counts no less than any other would, or 0
  --   lease       microseconds: how much later than its charge a unit may be used
  --   expiry      milliseconds: how long a charge counts at most, and two slices of time
  --   slice       microseconds: the expiry is set once in each slice of time
  --   each quota  as the algorithm reads it
  -- a record for each key:
  --   2 bytes     where its rule begins
  --   2 bytes     the number of rows
  --   the first row
  -- and then the other rows of all keys.
  --
  -- A row: cost (0 only looks); 2 bytes: the number of takes; deadline in microseconds.
  --
  -- Uses   question, at, place; read_quota(at) -> quota with its limit and life, at
  -- Gives  size: no answers yet; number_of_quotas, number_limiting, has_bound, quotas, limits, lease,
  --        expiry, slice, rows; of the first row cost, takes and deadline; at: the next record
  local rule_from
  rule_from, rows, cost, takes, deadline, at = unpack(RECORD, question, at)
  size = 0
  if rule_from ~= rule_known then
    local bounds, from
    number_of_quotas, number_limiting, bounds, lease, expiry, slice, from =
      unpack(RULE_HEAD, question, rule_from)
    for n = 1, number_of_quotas do
      quotas[n], from = read_quota(from)
      limits[n] = quotas[n].limit
    end
    rule_known, has_bound, expiry_text = rule_from, bounds == 1, nil
  end

  -- The end of a usual page: what a key's takes are answered, and the whole reply, if nothing is
  -- left for the core. What follows is for takes over several counts, each of one quota, up to the
  -- `end` behind `joint`.
  --
  -- Uses   is_usual, answer, place, replies, is_left, kind
  replies[place + 1] = is_usual and answer
  is_left = is_left or not is_usual
end
if kind == USUAL and not is_left then return concat(replies) end
if kind == SEVERAL then

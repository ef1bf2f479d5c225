-- Writes the state of a lone take. The question ends with the expiry as a text: to format a number
-- takes as long as a command.
--
-- Uses   state: its text; raw, last_charge, slice, key; behind: where that text begins
-- Gives  written
    local written
    if raw and last_charge - last_charge % slice == now - now % slice then
      written = pcall('SET', key, state, 'KEEPTTL')
    else
      written = pcall('SET', key, state, 'PX', string.sub(question, behind))
    end

-- Writes a state in the usual case. The expiry is set anew once in each slice of time.
--
-- Uses   state: its text; keeps_expiry; raw: the state before, or nil; and others of the usual case
-- Gives  is_usual: false if the server refused to write
    local written
    if keeps_expiry then
      written = pcall('SET', keys[place], state, 'KEEPTTL')
    else
      -- All keys of a rule have the same text: to format a number takes as long as a command. A
      -- value of another type is nil in `raw`, and NX keeps it.
      expiry_text = expiry_text or format('%.0f', expiry)
      written = pcall('SET', keys[place], state, 'PX', expiry_text, raw and 'XX' or 'NX')
    end
    is_usual = written and written.ok

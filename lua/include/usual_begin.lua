-- The beginning of the usual case: its loop over the records of a call, which `usual_end` closes.
--
-- Uses   values: of all keys, or false
-- Gives  concat; replies; is_left: whether the core has to answer some of the takes
--        in the loop: place; of the record rule_from, rows, cost, takes, deadline
-- The script reads a rule where rule_from ~= rule_at. It sets rule_at then, expiry_text to nil, and
-- this_slice: the number of the slice of now.
local concat, replies, is_left = table.concat, { pack('>I8I8', now, ARGV[2]) }, false
-- include: holds
local rule_at, quotas, expiry, slice, this_slice, expiry_text, _
local place, places = 1, kind == USUAL and #keys or 0
while place <= places do
  local rule_from, rows, cost, takes, deadline, behind = unpack(RECORD, question, at)
  at = behind

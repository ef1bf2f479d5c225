-- The beginning of the usual case: its loop over the records of a call, which `usual_end` closes.
--
-- Uses   values: of all keys, or false
-- Gives  floor, format, concat; replies; is_left: whether the core has to answer some of the takes
--        in the loop: place; of the record rule_from, rows, cost, takes, deadline
-- The script reads a rule where rule_from ~= rule_at. It sets rule_at then, expiry_text to nil, and
-- this_slice: when the slice of now began.
local floor, format, concat = math.floor, string.format, table.concat
local is_left, at, id = false, unpack(QUESTION_HEAD, question, 2)
-- A table that grows costs as much as a command: it has room for the answers of eight keys.
local replies = { pack(HEAD, id, ANSWERS, now), nil, nil, nil, nil, nil, nil, nil, nil }
if kind % HOLDS == LONE then kind = kind - LONE end
-- include: holds
local rule_at, quotas, expiry, slice, this_slice, expiry_text, _
local place, places = 1, kind == USUAL and #keys or 0
while place <= places do
  local rule_from, rows, takes, cost, deadline, behind = unpack(RECORD, question, at)
  at = behind

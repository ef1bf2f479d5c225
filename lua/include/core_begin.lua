-- The beginning of the core, which `core` closes, and what its states share. All of it stands in one
-- function: what its inner ones use of the script costs less so.
local max, min, ceil, byte = math.max, math.min, math.ceil, string.byte
local function core()

-- By place, the state of a key, and the cost of the take in hand. These begin with room for four,
-- since a table that grows costs as much as a command.
local counts, costs = { false, false, false, false }, { 0, 0, 0, 0 }
-- Rules by where the question says them; states by key, where a key may come twice; functions of
-- permits and of the calendar, if they are needed.
local rules, states = {}, kind ~= USUAL and kind ~= GENERAL and {}
local permits, calendars

-- What is stored, for those that read the states of other algorithms. What the fields are, each algorithm's own
-- script says; it has its numbers in its own text, since it reads them at every call.
--
-- Uses   nothing
-- Gives  STATE    what the states that are strings begin with: mark, serial, newest
--        LOG      an entry of the log, and what stands behind it where more is needed
--        SECTIONS, BUCKET, FIXED   a tally of the sliding window, of the bucket, of the fixed window

local STATE = { head = '>BI7I7', head_size = 15 }
local LOG = { mark = 247, entry = '>BI7I7I7I7I7I7I7I7', entry_size = 57, more = '>I7I7I7I7', more_size = 28 }
-- The tally's entries stand behind it.
local SECTIONS = { mark = 248, tally = '>I7I7I7I7I7I7I2', size = 44, entry = '>I7I7', entry_size = 14 }
local BUCKET = { mark = 249, tally = '>I7I7I7I7I7I7I7', size = 49 }
-- The smallest of the tallies.
local FIXED = { mark = 250, tally = '>I7I7I7I7I7I7', size = 42 }

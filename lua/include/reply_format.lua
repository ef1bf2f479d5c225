-- The reply of a call: one string, big-endian; numbers have 7 bytes unless it says otherwise.
--
--   8 bytes    now, in microseconds since the epoch
--   8 bytes    the call id, ARGV[2]
-- and for each key, for each row one or more answers, until all its takes are answered:
--   1 byte     verdict: 0 denied, 1 allowed, 2 never, 3 late, 4 error, 5 denied by a hold for
--              longer than by the quotas; in a take over several counts each says its own, and one
--              with room for a take that another one denies says denied and a wait of 0
--   2 bytes    the number of takes that are answered alike: all denied, or each charged once more
--              than the one before; of an error the length of its text
-- of late takes no more; of an error its text, which answers all takes of the key; and else
--   number     microseconds to wait if it was denied or held, the serial number of the last if it
--              was charged, or 0; of units owed how many were charged
--   each quota that limits, after the last take: units remaining, microseconds until it is whole
-- and, if the script sets tells_held and several takes were charged, for each of these quotas
--   number     units that its counter holds
--
-- Uses   question; replies: the head, and behind it what is answered about each key
-- Gives  answers, size: those about the key in hand; what `read_question`
--        and `read_row` fill

local rule_known, number_of_quotas, number_limiting, has_bound, lease, expiry, expiry_text, slice, rows
local cost, takes, deadline, permits
local answers, size = {}, 0
-- Where the records begin, and where the next further row does.
local _, records = unpack('>BI2', question)
-- Until when each key is held, in microseconds; false where it is not. These keys come behind the
-- others: see `read_question`.
local number_of_keys, holds, held = #KEYS, nil, nil
if kind == HOLDS then
  number_of_keys = number_of_keys / 2
  holds = call('MGET', _G.unpack(KEYS, number_of_keys + 1))
end
local further = records + number_of_keys * RECORD_SIZE
-- A take over several counts: the places of the first and the last one; whether all are looked at
-- before any is charged; of its takes, how many fit into each, and how many do not fit into some;
-- and what is wrong with one of them.
local rules_read = {}
-- Whether a row charges units owed; and how many units may be used under each quota with those.
local owes, most = false, {}
local joint_first, joint_last, looks, fitting, unfitting, joint_error

-- The entries of a log.
--
-- One member holds all takes of a millisecond. Its score is the instant of the last of them; the
-- member itself is a byte that no text begins with, and big-endian integers of 7 bytes, so that
-- members of one score are in the order of their totals:
--   total         running total of all costs, with this entry, modulo 2^52
--   base          the same before this entry: the sum inside a window is one subtraction
--   oldest_base   the base of the oldest entry of the set
--   oldest_stamp  the score of the oldest entry of the set
--   stamp         this entry's score, so that no command has to ask for it
--   horizon       the longest window of the quotas that it was charged under
--   units         the largest max of these
--   serial        units ever charged, modulo 2^52: tells takes of one instant apart; and 2^52 more
--                 if units were given back
-- and only where longer windows of earlier charges still need something of the set, the clock went
-- back, or a rule with a lease charged something:
--   long_window, long_units   the entries inside of this window are still needed: the newest one
--                             by one, until they hold that many units, and older ones as one
--   long_until                until when
--   refundable_since          takes that were charged before this are not given back
--   marked_lease, lease_stamp, lease_life
--                             the lease that counts for all takers: see include/longer.lua
--
-- Where units of other entries than the newest were given back, the set has one more member, with
-- the score -1: see include/refunded_ranges.lua. The units are numbered by the running totals.
--
-- Uses   now
-- Gives  newest, and the fields of the newest entry, for `read_log` to fill; entry_of

-- The newest entry, and its fields. A charge changes the fields.
local newest, total, base, oldest_base, oldest_stamp, stamp, horizon, units, serial
local long_window, long_units, long_until, refundable_since
local marked_lease, lease_stamp, lease_life
-- Whether nothing in the set counts. And what was given back, or nil.
local is_stale, refunded

-- An entry's stamp, and the running totals before and with it; nil if the member is no entry.
local function entry_of(member)
  if not member or #member < LOG_ENTRY_SIZE then return nil end
  local mark, with, before, _, _, of = unpack(LOG_ENTRY, member)
  if mark ~= LOG_MARK then return nil end
  return of, before, with
end

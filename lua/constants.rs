// What scripts of takes and refunds have in common with one another and with Rust, which includes
// this file (`src/algorithm/mod.rs`). A name of this list stands in a script for the text between
// ` = ` and `;`. Rust puts that text in, together with the includes
// (`crates/base/src/connection/scripts.rs`), so that no script has a local for it: a local costs a
// call more than a number.
// All formats are big-endian.

// The kinds of calls, to which HOLDS may be added: see formats.md.
pub(crate) const USUAL: u8 = 0;
pub(crate) const GENERAL: u8 = 2;
pub(crate) const NAMES_TWICE: u8 = 1;
pub(crate) const LONE: u8 = 3;
pub(crate) const HOLDS: u8 = 16;

// The question. The record of a key, further rows, and the beginning of a rule; the numbers by which
// a record says that it is of a take over several counts, or that it charges units owed.
pub(crate) const RECORD: &str = ">I2I2I2I7I7";
pub(crate) const RECORD_SIZE: usize = 20;
pub(crate) const ROW: &str = ">I2I7I7";
pub(crate) const RULE_HEAD: &str = ">BI7I7";
pub(crate) const JOINT: u16 = 32768;
pub(crate) const OWED: u16 = 16384;
// In place of a number of quotas, of which there are at most 16.
pub(crate) const CALENDAR: u8 = 17;
// The beginning of a rule and its only quota.
pub(crate) const WINDOW_RULE: &str = ">BI7I7I7I7I7";
pub(crate) const GCRA_RULE: &str = ">BI7I7I7I7I7I7I7I7";
pub(crate) const FIXED_RULE: &str = ">BI7I7I7I7";
// Behind the kind of the call: where the records begin, and the call's id.
pub(crate) const QUESTION_HEAD: &str = ">I2c8";
// The question of a lone take, which ends with the expiry as a text: what its usual case needs of
// it, from the id on. GCRA needs max and window only to compare and to keep them: one text.
pub(crate) const LONE_AT: u64 = 4;
pub(crate) const LONE_QUESTION: &str = ">c8I8I7I7I7I6I7I7";
pub(crate) const WINDOW_LONE: &str = ">c8I8I7I7I7I7I6I7I7";
pub(crate) const GCRA_LONE: &str = ">c8I8I7c14I7I7I7I7I6I7I7";
// A quota of a rule.
pub(crate) const LOG_QUOTA: &str = ">I7I7";
pub(crate) const GCRA_QUOTA: &str = ">I7I7I7I7I7I7";

// The reply: see formats.md.
pub(crate) const HEAD: &str = ">c8I8I7";
pub(crate) const LONE_REPLY: &str = ">c8I8I7BI2I7I7I7";
pub(crate) const LONE_DENIED: &str = ">c8BI7I7I7";
pub(crate) const ANSWERS: u64 = 0;
pub(crate) const DENIED: u64 = 0;
pub(crate) const ALLOWED: u64 = 1;
pub(crate) const NEVER: u64 = 2;
pub(crate) const LATE: u64 = 3;
pub(crate) const ERROR: u64 = 4;
pub(crate) const ON_HOLD: u64 = 5;
pub(crate) const DENIED_ON_HOLD: u64 = 8;
pub(crate) const ALLOWED_AFTER_FAILURES: u64 = 6;
pub(crate) const OUTSIDE: u64 = 7;
// Behind it stands what denied a lone take; a mark of states is above it, too.
pub(crate) const DENIED_STATE: u64 = 9;
pub(crate) const ANSWER: &str = ">BI2I7I7I7";
pub(crate) const SHORT_ANSWER: &str = ">BI2";
pub(crate) const NEXT_QUOTA: &str = ">I7I7";
pub(crate) const COUNTER_UNITS: &str = ">I7";

// The first byte of a count says what wrote it. No text begins with one of these.
pub(crate) const MIN_MARK: u64 = 247;
pub(crate) const LOG_MARK: u64 = 247;
pub(crate) const WINDOW_MARK: u64 = 248;
pub(crate) const GCRA_MARK: u64 = 249;
pub(crate) const FIXED_MARK: u64 = 250;
pub(crate) const RESET_MARK: u64 = 251;
pub(crate) const REFUNDED_MARK: u64 = 253;
pub(crate) const CALENDAR_MARK: u64 = 254;

// Running totals and serial numbers are modulo 2^52, so that doubles hold the sum of any two.
pub(crate) const MODULUS: u64 = 4503599627370496;
// Products below this are exact.
pub(crate) const EXACT: u64 = 9007199254740992;
pub(crate) const TEN_YEARS: u64 = 315576000000000;
pub(crate) const MILLISECOND: u64 = 1000;
// A failure of a request that has taken longer than so many microseconds counts behind a hold, too.
pub(crate) const SLOW_REQUEST: u64 = 10000000;
// The most failures that are known, in case that they are reported again, above those of a hold.
pub(crate) const MAX_REPEATED: usize = 32;
// In milliseconds: for how long a count of the calendar is kept behind its end.
pub(crate) const TWO_DAYS: u64 = 172800000;
// The expiry is set once in each slice of time, so it has to last two slices more. The shortest
// slice is about a second.
pub(crate) const SLICE: u64 = 1048576;

// No log holds more units. No quota needs more, together with those owed, and a sum of these and of
// one take is below MODULUS.
pub(crate) const MAX_STORED: u64 = 2251799813685248;

// A state with counters: its header, and the counters.
pub(crate) const HEADER: &str = ">BI7I7";
pub(crate) const HEADER_SIZE: u64 = 15;
pub(crate) const WINDOW_COUNTER: &str = ">I7I7I7I7I7I7I2";
pub(crate) const WINDOW_COUNTER_SIZE: u64 = 44;
pub(crate) const WINDOW_ENTRY: &str = ">I7I7";
pub(crate) const WINDOW_ENTRY_SIZE: u64 = 14;
pub(crate) const GCRA_COUNTER: &str = ">I7I7I7I7I7I7I7";
pub(crate) const GCRA_COUNTER_SIZE: u64 = 49;
pub(crate) const FIXED_COUNTER: &str = ">I7I7I7I7I7I7";
pub(crate) const FIXED_COUNTER_SIZE: u64 = 42;
// The most counters of a key.
pub(crate) const MAX_COUNTERS: usize = 32;
// The header and the only counter.
pub(crate) const WINDOW_STATE: &str = ">BI7I7I7I7I7I7I7I7I2";
pub(crate) const WINDOW_STATE_SIZE: u64 = 59;
pub(crate) const GCRA_STATE: &str = ">BI7I7I7I7I7I7I7I7I7";
pub(crate) const GCRA_STATE_SIZE: u64 = 64;
pub(crate) const FIXED_STATE: &str = ">BI7I7I7I7I7I7I7I7";
pub(crate) const FIXED_STATE_SIZE: u64 = 57;
// The same in parts: what stands in the middle is alike after charges of one instant under a rule.
pub(crate) const GCRA_LONE_STATE: &str = ">BI7I7c14I7I7I7I7I7";
pub(crate) const GCRA_PARTS: &str = ">BI7c35I7I7I7";
pub(crate) const GCRA_STAMPED: &str = ">I7I7I7I7I7";
pub(crate) const FIXED_PARTS: &str = ">BI7c28I7I7I7";
pub(crate) const FIXED_STAMPED: &str = ">I7I7I7I7";
// What `reset` leaves in the place of a count: its mark, and since when takes are given back.
pub(crate) const RESET: &str = ">BI7";
pub(crate) const RESET_SIZE: u64 = 8;

// A count of the calendar: see include/calendar.lua.
pub(crate) const CALENDAR_RULE: &str = ">BI7I7I7I7";
pub(crate) const CALENDAR_STATE: &str = ">BI7I7I7";
pub(crate) const CALENDAR_STATE_SIZE: u64 = 22;

// The entry of a log, and what may stand behind it: see include/sliding_log.lua.
pub(crate) const LOG_ENTRY: &str = ">BI7I7I7I7I7I7I7I7";
pub(crate) const LOG_ENTRY_SIZE: u64 = 57;
pub(crate) const LOG_MORE: &str = ">I7I7I7I7";
pub(crate) const LOG_ENTRY_AND_MORE_SIZE: u64 = 85;
pub(crate) const LOG_WITH_REFUNDED: u64 = 4503599627370496;

// Refunds: see include/refund_begin.lua and include/refunded_ranges.lua.
pub(crate) const RECEIPT: &str = ">I7I7I7I7B";
pub(crate) const RANGES_HEAD: &str = ">BI7";
pub(crate) const RANGES_SIZE: u64 = 8;
pub(crate) const RANGE: &str = ">I7I7";
pub(crate) const RANGE_SIZE: u64 = 14;
pub(crate) const LOG_MAX_RANGES: usize = 32;
pub(crate) const GCRA_MAX_RANGES: usize = 4;

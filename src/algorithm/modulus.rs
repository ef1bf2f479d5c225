/// Running totals and serial numbers count modulo 2^52, so that the doubles of the Lua scripts hold
/// them, and the sum of any two of them, exactly.
pub(crate) const MODULUS_MASK: u64 = (1 << 52) - 1;

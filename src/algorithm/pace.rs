//! How a bucket drains.

use crate::quota::Quota;

/// The rate of a bucket: `units` drain in every `micros`. These are a quota's max and window
/// without their common factors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) units: u64,
    pub(super) micros: u64,
}

impl Pace {
    /// A quota without units is never charged, so its pace does not matter.
    pub(super) fn new(quota: &Quota) -> Self {
        let (max, window) = (quota.max().max(1), quota.window_micros());
        let common = greatest_common_divisor(max, window);
        Self {
            units: max / common,
            micros: window / common,
        }
    }

    /// How long the fullest bucket of this quota drains, in microseconds.
    pub(super) fn life(self, quota: &Quota) -> u64 {
        self.time_for(quota.max().max(quota.burst()))
    }

    /// Units of which at least a part drains in this time.
    pub(super) fn touched(self, micros: u64) -> u64 {
        let (whole, part) = whole_and_part(micros, self.micros);
        let (part, more) = fraction(part, self.units, self.micros);
        let whole = whole.saturating_mul(self.units);
        whole.saturating_add(part).saturating_add(more)
    }

    /// Units that drain in this time, rounded down, and how many whole paces it has.
    pub(super) fn drained(self, micros: u64) -> (u64, u64) {
        let (paces, part) = whole_and_part(micros, self.micros);
        let (part, _) = fraction(part, self.units, self.micros);
        let drained = paces.saturating_mul(self.units).saturating_add(part);
        (drained, paces)
    }

    /// Microseconds in which `units` drain, rounded up.
    pub(super) fn time_for(self, units: u64) -> u64 {
        let (whole, part) = whole_and_part(units, self.units);
        let (part, more) = fraction(part, self.micros, self.units);
        let whole = whole.saturating_mul(self.micros);
        whole.saturating_add(part).saturating_add(more)
    }
}

/// Quotient and remainder, without a division where none is needed: most paces are one unit in some
/// number of microseconds.
fn whole_and_part(number: u64, of: u64) -> (u64, u64) {
    match of {
        1 => (number, 0),
        _ if number < of => (0, number),
        _ => (number / of, number % of),
    }
}

/// `part * number / of` for a part smaller than `of`: the quotient rounded down, and 1 if that is
/// less than the exact one.
fn fraction(part: u64, number: u64, of: u64) -> (u64, u64) {
    if part == 0 {
        return (0, 0);
    }
    if let Some(product) = part.checked_mul(number) {
        return (product / of, u64::from(!product.is_multiple_of(of)));
    }
    let product = u128::from(part) * u128::from(number);
    let of = u128::from(of);
    let quotient = u64::try_from(product / of).expect("smaller than `number`");
    (quotient, u64::from(!product.is_multiple_of(of)))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

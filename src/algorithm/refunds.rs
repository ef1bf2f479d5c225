use crate::decision::Token;

/// Takes that were given back, for as long as they may be given back again.
#[derive(Debug, Clone, Default)]
pub(super) struct Refunds(Vec<Refund>);

/// The units given back of those takes whose serial number is as asked for.
pub(super) type GivenBack<'a> = dyn Fn(&dyn Fn(u64) -> bool) -> u64 + 'a;

#[derive(Debug, Clone)]
struct Refund {
    token: Token,
    units: u64,
}

impl Refunds {
    /// When the latest of those takes was charged.
    pub(super) fn newest(&self) -> Option<u64> {
        self.iter().map(|refund| refund.token.stamp()).max()
    }

    pub(super) fn contains(&self, token: &Token) -> bool {
        self.iter().any(|refund| refund.token == *token)
    }

    /// Units of those takes, not stamped before `since`, whose serial number is of this kind.
    pub(super) fn units(&self, since: u64, of: &dyn Fn(u64) -> bool) -> u64 {
        let refunds = self.iter().filter(|refund| refund.token.stamp() >= since);
        let refunds = refunds.filter(|refund| of(refund.token.serial()));
        refunds.map(|refund| refund.units).sum()
    }

    /// Adds one, and forgets those of takes before `since`.
    pub(super) fn add(&mut self, token: Token, units: u64, since: u64) {
        self.0.retain(|refund| refund.token.stamp() >= since);
        self.0.push(Refund { token, units });
    }

    fn iter(&self) -> impl Iterator<Item = &Refund> {
        self.0.iter()
    }
}

use crate::rule::Rule;

/// The takes of one rule and key, in order of arrival.
pub(in crate::connection) struct Batch<'a> {
    pub(in crate::connection) rule: &'a Rule,
    pub(in crate::connection) name: &'a str,
    pub(in crate::connection) rows: &'a [Row],
}

/// Successive takes of the same cost.
///
/// The script does not decide the takes of a row one by one: the first ones that fit are charged
/// together, and all others are denied together.
pub(in crate::connection) struct Row {
    pub(in crate::connection) cost: u64,
    pub(in crate::connection) takes: u16,
    /// In microseconds of the server's clock.
    pub(in crate::connection) deadline: u64,
}

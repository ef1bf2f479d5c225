//! Keys that go together stand in the same slot of a cluster: that of what their names have between
//! the first braces.

/// The name in braces; a name with braces of its own is left as it is, as Redisson does it.
#[cfg_attr(not(any(feature = "limiter", feature = "lock")), expect(dead_code))]
pub(crate) fn tagged(name: &str) -> String {
    match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    }
}

/// The name of what was given back of a count, which no count has, since rules and keys have no
/// braces in their names.
pub(crate) fn of_refunds(name: &str) -> String {
    let has_tag = name
        .split_once('{')
        .is_some_and(|(_, rest)| rest.contains('}'));
    match has_tag {
        true => format!("{name}{{refunds}}"),
        false => format!("{{{name}}}:refunds"),
    }
}

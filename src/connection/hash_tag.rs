//! Names of keys that one script call uses together. A cluster chooses the slot of a key by the
//! text between the first braces in its name, so these names have the same text there.

/// The name in braces. A name that contains `{` is left as it is, as Redisson leaves it.
#[cfg_attr(not(any(feature = "limiter", feature = "lock")), expect(dead_code))]
pub(crate) fn tagged(name: &str) -> String {
    match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    }
}

/// The name of the key with the refunds of the count `name`. It differs from the names of all
/// counts: paths and keys are encoded without braces.
pub(crate) fn of_refunds(name: &str) -> String {
    let has_tag = name
        .split_once('{')
        .is_some_and(|(_, rest)| rest.contains('}'));
    match has_tag {
        true => format!("{name}{{refunds}}"),
        false => format!("{{{name}}}:refunds"),
    }
}

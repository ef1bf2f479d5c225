use http::Method;

use super::key_names::networks;
use super::table::{Mistake, Table, Value};
use crate::rule::Exemptions;

/// The table `exempt` of a file or of a rule.
pub(super) fn exemptions(table: &Table<'_>) -> Result<Exemptions, Mistake> {
    table.only(&["paths", "methods", "networks"])?;
    Ok(Exemptions {
        paths: table.read("paths", paths)?.unwrap_or_default(),
        methods: table.read("methods", methods)?.unwrap_or_default(),
        networks: table.read("networks", networks)?.unwrap_or_default(),
        client_ip: None,
    })
}

/// Paths that a request can have.
fn paths(value: &Value<'_>) -> Result<Vec<Box<str>>, Mistake> {
    let expected = "a whole path such as \"/healthz\", without \"*\", \"{\", \"?\" and \"#\"";
    value.texts("a list of paths", expected, |path| {
        let is_plain = |byte: u8| !byte.is_ascii_control() && !b" *{?#".contains(&byte);
        let is_path = path.starts_with('/') && path.bytes().all(is_plain);
        is_path.then(|| path.into())
    })
}

/// Methods, which are written in capitals. HTTP allows other characters, as in `*` and `GET|POST`:
/// whoever writes these means something else.
fn methods(value: &Value<'_>) -> Result<Vec<Method>, Mistake> {
    let expected = "a method in capitals such as \"OPTIONS\"";
    value.texts("a list of methods", expected, |name| {
        let is_plain =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
        let is_method = name.bytes().all(is_plain);
        let method = Method::from_bytes(name.as_bytes()).ok();
        method.filter(|_| is_method)
    })
}

//! Encodes the path of a rule, which may be any text, as the path of a URL.

use std::fmt::Write;

/// The bytes that need no encoding in a URL's path, besides letters and digits.
const PLAIN: &[u8] = b"-._~!$&'()*+,;=:@/";

/// The URL of a rule's path, with one slash in front; nothing where clients would resolve it to
/// another one, as they do with `..`.
///
/// What is encoded includes `{` and `}`, so nothing in it is a placeholder to the router.
pub(crate) fn of(path: &str) -> Option<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return None;
    }
    let mut url = String::from("/");
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) {
            true => url.push(byte.into()),
            // Writing to a string cannot fail.
            false => _ = write!(url, "%{byte:02X}"),
        }
    }
    Some(url)
}

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{HeaderMap, HeaderName, header};

/// The most elements of a field that are read: more than any real chain of proxies writes.
pub(super) const MAX_HOPS: usize = 64;
/// The most bytes of a field that are read, from the right.
const MAX_BYTES: usize = 8 * 1024;

/// The one field in which trusted proxies record where a request came from.
///
/// Only this field is read: a client may send any of the others itself.
///
/// ```
/// use http::HeaderName;
/// use tidegate::ClientIp;
/// use tidegate::key::Forwarding;
///
/// // Cloudflare names the client in a field of its own.
/// let field = Forwarding::Header(HeaderName::from_static("cf-connecting-ip"));
/// let client = ClientIp::behind(["173.245.48.0/20".parse()?]).field(field);
/// # let _ = client;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`, a list of addresses. The default.
    #[default]
    XForwardedFor,
    /// `Forwarded`, [RFC 7239](https://www.rfc-editor.org/rfc/rfc7239).
    Forwarded,
    /// A field of another name with one address or a list of them, such as `CF-Connecting-IP`.
    Header(HeaderName),
}

impl Forwarding {
    /// The addresses in all lines of the field, from the right. `None` stands for an element that
    /// is no address. Ends at the bounds.
    pub(super) fn hops<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = Option<IpAddr>> + 'a {
        let lines = headers.get_all(self.name()).into_iter().rev();
        let mut budget = MAX_BYTES;
        lines
            .map(http::HeaderValue::as_bytes)
            .flat_map(elements_from_the_right)
            .take(MAX_HOPS)
            .take_while(move |element| {
                let fits = element.len() < budget;
                budget = budget.saturating_sub(element.len() + 1);
                fits
            })
            .map(<[u8]>::trim_ascii)
            .filter(|element| !element.is_empty())
            .map(|element| self.address(std::str::from_utf8(element).ok()?))
    }

    pub(super) fn name(&self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => header::FORWARDED,
            Self::Header(name) => name.clone(),
        }
    }

    fn address(&self, element: &str) -> Option<IpAddr> {
        match self {
            Self::Forwarded => node(&forwarded_for(element)?),
            Self::XForwardedFor | Self::Header(_) => node(element),
        }
    }
}

/// Splits at commas outside of quotes, the last element first.
///
/// From the right, so that an unbalanced quote that a client sent cannot swallow what a trusted
/// proxy appended to it.
fn elements_from_the_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut quoted = false;
        let comma = line.iter().enumerate().rposition(|(at, byte)| {
            quoted ^= *byte == b'"' && !is_escaped(line, at);
            *byte == b',' && !quoted
        });
        rest = comma.map(|at| &line[..at]);
        Some(comma.map_or(line, |at| &line[at + 1..]))
    })
}

/// Whether a backslash escapes the byte at this index. A backslash that is escaped itself does not.
fn is_escaped(line: &[u8], at: usize) -> bool {
    let backslashes = line[..at].iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The `for` parameter of an element of `Forwarded`, unquoted. `None` if it is missing, if there
/// are two, or if a quote is not closed.
fn forwarded_for(element: &str) -> Option<Cow<'_, str>> {
    let mut found = None;
    for pair in pairs(element)? {
        let Some((name, value)) = pair.split_once('=') else {
            continue;
        };
        let is_for = name.trim().eq_ignore_ascii_case("for");
        if is_for && found.replace(value.trim()).is_some() {
            return None;
        }
    }
    unquoted(found?)
}

/// Splits at semicolons outside of quotes. `None` if a quote is not closed.
fn pairs(element: &str) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped) = (false, false);
    let pairs = element.split(|char| {
        let was_escaped = std::mem::take(&mut escaped);
        match char {
            '\\' if quoted => escaped = !was_escaped,
            '"' if !was_escaped => quoted = !quoted,
            _ => {}
        }
        char == ';' && !quoted
    });
    let pairs = pairs.collect();
    (!quoted).then_some(pairs)
}

/// The value of a parameter without its quotes, and without the backslashes that escape in them.
fn unquoted(value: &str) -> Option<Cow<'_, str>> {
    let Some(opened) = value.strip_prefix('"') else {
        return Some(value.into());
    };
    let inner = opened.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(inner.into());
    }
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        text.push(if char == '\\' { chars.next()? } else { char });
    }
    Some(text.into())
}

/// An address, with or without port and brackets. Some proxies write IPv6 and port without brackets:
/// of up to eight groups all are the address. nginx writes `unix:` for a peer on its own machine.
fn node(text: &str) -> Option<IpAddr> {
    if text == "unix:" {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse().ok().map(|addr: SocketAddr| addr.ip());
    let unbracketed = || {
        let (ip, port) = text.rsplit_once(':')?;
        port.parse::<u16>().ok()?;
        Some(IpAddr::V6(ip.parse().ok()?))
    };
    let ip = text.parse().ok().or_else(with_port).or_else(bracketed);
    Some(ip.or_else(unbracketed)?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(forwarding: Forwarding, lines: &[&str]) -> Vec<Option<String>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(forwarding.name(), line.parse().expect("a field value"));
        }
        let hops = forwarding.hops(&headers);
        hops.map(|hop| hop.map(|ip| ip.to_string())).collect()
    }

    fn some(hops: &[&str]) -> Vec<Option<String>> {
        hops.iter().map(|hop| Some((*hop).to_owned())).collect()
    }

    #[test]
    fn x_forwarded_for() {
        let list = |lines: &[&str]| hops(Forwarding::XForwardedFor, lines);
        assert_eq!(
            list(&[
                "1.1.1.1, 2.2.2.2:80",
                " [2001:db8::1]:443,[::1] , ::ffff:3.3.3.3,"
            ]),
            some(&["3.3.3.3", "::1", "2001:db8::1", "2.2.2.2", "1.1.1.1"])
        );
        assert_eq!(list(&["unknown, 1.1.1.1"])[1], None);
        assert_eq!(list(&["", " , "]), []);
        assert_eq!(list(&["1.2.3.4:http"]), [None]);
    }

    #[test]
    fn forwarded() {
        let list = |lines: &[&str]| hops(Forwarding::Forwarded, lines);
        assert_eq!(
            list(&["For=1.1.1.1;proto=http, by=x;for=\"[2001:db8::1]:4711\";ext=\"a,b\""]),
            some(&["2001:db8::1", "1.1.1.1"])
        );
        assert_eq!(list(&["for=_hidden"]), [None]);
        assert_eq!(list(&["proto=http"]), [None]);
        assert_eq!(list(&["for=1.1.1.1;for=2.2.2.2"]), [None]);
    }

    /// RFC 7239: the value of a parameter may be a quoted string, with separators in it.
    #[test]
    fn quotes_hide_separators() {
        let list = |line: &str| hops(Forwarding::Forwarded, &[line]);
        for host in [
            r#""a;for=6.6.6.6""#,
            r#""a, for=6.6.6.6""#,
            r#""\";for=6.6.6.6""#,
            r#""\", for=6.6.6.6""#,
            r#""\\\";for=6.6.6.6""#,
            r#""a\\""#,
            r#""\\\\""#,
        ] {
            let one = some(&["1.2.3.4"]);
            assert_eq!(list(&format!("for=1.2.3.4;host={host}")), one, "{host}");
            assert_eq!(list(&format!("host={host};for=1.2.3.4")), one, "{host}");
            let two = format!("for=1.1.1.1;host={host}, host={host};for=1.2.3.4");
            assert_eq!(list(&two), some(&["1.2.3.4", "1.1.1.1"]), "{host}");
        }
        assert_eq!(list(r#"for="\[2001:db8::1\]:80""#), some(&["2001:db8::1"]));
        for nonsense in [
            r#"for=1.1.1.1;host="a"#,
            r#"for="1.1.1.1\"""#,
            r#"for="1.1.1.1"2"#,
            r#"for=1.1.1.1"2""#,
            r#"for=1.1.1.1;for="2.2.2.2""#,
        ] {
            assert_eq!(list(nonsense), [None], "{nonsense}");
        }
    }

    #[test]
    fn an_open_quote_swallows_nothing_to_its_right() {
        let forged = hops(Forwarding::Forwarded, &["for=\"9.9.9.9, for=1.1.1.1"]);
        assert_eq!(forged.first(), Some(&Some("1.1.1.1".to_owned())));
    }

    #[test]
    fn bounds() {
        let many = vec!["1.1.1.1"; 100].join(",");
        assert_eq!(hops(Forwarding::XForwardedFor, &[&many]).len(), MAX_HOPS);
        let wide = format!("1.1.1.1,{},2.2.2.2", "x".repeat(MAX_BYTES));
        assert_eq!(
            hops(Forwarding::XForwardedFor, &[&wide]),
            some(&["2.2.2.2"])
        );
    }
}

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};

use super::canonical;

/// More hops than any real chain of proxies; the rest of a field is not looked at.
const MOST_HOPS: usize = 64;
/// As far to the left as a field is looked at.
const MOST_BYTES: usize = 8 * 1024;

/// The one field in which trusted proxies record where a request came from.
///
/// Exactly one field is believed: a client may send any of the others.
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

/// Right-to-left over the hops of all lines of a field.
impl Forwarding {
    /// The hops, nearest first; `None` for one that is not an address. Ends at the bounds.
    pub(super) fn hops<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = Option<IpAddr>> + 'a {
        let lines: Vec<&[u8]> = headers
            .get_all(self.name())
            .iter()
            .map(http::HeaderValue::as_bytes)
            .collect();
        let mut budget = MOST_BYTES;
        lines
            .into_iter()
            .rev()
            .flat_map(elements_from_the_right)
            .take(MOST_HOPS)
            .take_while(move |element| {
                let fits = element.len() < budget;
                budget = budget.saturating_sub(element.len() + 1);
                fits
            })
            .map(<[u8]>::trim_ascii)
            .filter(|element| !element.is_empty())
            .map(|element| self.address(std::str::from_utf8(element).ok()?))
    }

    fn name(&self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => header::FORWARDED,
            Self::Header(name) => name.clone(),
        }
    }

    fn address(&self, element: &str) -> Option<IpAddr> {
        match self {
            Self::Forwarded => node(forwarded_for(element)?),
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
            let escaped = at > 0 && line[at - 1] == b'\\';
            quoted ^= *byte == b'"' && !escaped;
            *byte == b',' && !quoted
        });
        rest = comma.map(|at| &line[..at]);
        Some(comma.map_or(line, |at| &line[at + 1..]))
    })
}

/// The `for` parameter of an element of `Forwarded`, unquoted. Two of them are nonsense.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut values = element.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let is_for = name.trim().eq_ignore_ascii_case("for");
        is_for.then(|| value.trim())
    });
    let value = values.next().filter(|_| values.next().is_none())?;
    match value.strip_prefix('"') {
        Some(opened) => opened.strip_suffix('"'),
        None => Some(value),
    }
}

/// An address, with or without port and brackets.
fn node(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse().ok().map(|addr: SocketAddr| addr.ip());
    let ip = text.parse().ok().or_else(with_port).or_else(bracketed)?;
    Some(canonical(ip))
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

    #[test]
    fn an_open_quote_swallows_nothing_to_its_right() {
        let forged = hops(Forwarding::Forwarded, &["for=\"9.9.9.9, for=1.1.1.1"]);
        assert_eq!(forged.first(), Some(&Some("1.1.1.1".to_owned())));
    }

    #[test]
    fn bounds() {
        let many = vec!["1.1.1.1"; 100].join(",");
        assert_eq!(hops(Forwarding::XForwardedFor, &[&many]).len(), MOST_HOPS);
        let wide = format!("1.1.1.1,{},2.2.2.2", "x".repeat(MOST_BYTES));
        assert_eq!(
            hops(Forwarding::XForwardedFor, &[&wide]),
            some(&["2.2.2.2"])
        );
    }
}

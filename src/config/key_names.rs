use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::config_error::{ConfigError, shorten_value};
use super::table::Value;
use crate::key::header::Header;
use crate::key::ip::{ClientIp, PeerIp, is_too_wide, unmapped};
#[cfg(feature = "axum")]
use crate::key::matched_path::MatchedPath;
use crate::key::{
    BasicUser, Bearer, Cookie, Everyone, Forwarding, Host, Joined, KeyExtractor, Method,
};
use crate::warning::WIDE_TRUST;

const EXPECTED: &str = "\"client-ip\", \"peer-ip\", \"bearer\", \"basic-user\", \"host\", \"header:<name>\", \
     \"cookie:<name>\", \"method\", \"matched-path\" (with the feature \"axum\"), \"everyone\", \
     or alternatives such as \"bearer | client-ip\"";

/// More alternatives than any service needs. It bounds what they cost a request, and what reading
/// a file costs.
const MAX_ALTERNATIVES: usize = 16;

/// The key "client-ip" has no default for the trusted proxies: behind a proxy, all clients would
/// silently share one limit.
const NO_CLIENT_IP: &str = "the key \"client-ip\" without a table [client-ip], expected one \
     that says which proxies are trusted: trusted = [\"10.0.0.0/8\"] or hops = 1; trusted = [] if \
     clients connect directly";

/// HTTP/2 has the host in the URI.
const FIELD_HOST: &str = "found \"header:host\", expected \"host\": HTTP/2 has no such field";

/// A key of a file: its text in one form, and its extractor. Two keys are the same if their texts
/// are.
pub(super) type NamedKey = (String, Arc<dyn KeyExtractor>);

/// The key of a text, or of a list of texts: the keys of a list are joined in its order, with a
/// comma between their texts.
pub(super) fn named_key(
    value: &Value<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<NamedKey, ConfigError> {
    let Some(list) = value.list() else {
        return alternatives(value, client_ip);
    };
    if list.len() == 0 {
        return Err(value.mistake(format!("an empty list, expected {EXPECTED}")));
    }
    let parts = list.map(|part| alternatives(&part, client_ip));
    let parts: (Vec<_>, Vec<_>) = parts.collect::<Result<_, _>>()?;
    Ok((parts.0.join(", "), Arc::new(Joined::new(parts.1))))
}

/// The key of a name, or of several with a `|` between them: in its text, with one blank on both
/// sides.
fn alternatives(value: &Value<'_>, client_ip: Option<&ClientIp>) -> Result<NamedKey, ConfigError> {
    let names = value.text(EXPECTED, Some)?;
    let names: Vec<_> = names.split('|').map(str::trim).collect();
    if names.len() > MAX_ALTERNATIVES {
        let message = format!("more alternatives than expected, at most {MAX_ALTERNATIVES}");
        return Err(value.mistake(message));
    }
    let extractors = names.iter().map(|name| extractor(value, name, client_ip));
    let extractors = extractors.reduce(|first, next| Ok(Arc::new(first?.or(next?))));
    let extractors = extractors.ok_or_else(|| value.not(EXPECTED))??;
    if let Some((_, others)) = names.split_last()
        && let Some(name) = others.iter().find(|name| is_never_absent(name))
    {
        let message = format!(
            "\"{name}\" before other alternatives, expected it as the last one: every request has it"
        );
        return Err(value.mistake(message));
    }
    let names = names.into_iter().map(|name| {
        if name.starts_with("header:") {
            name.to_ascii_lowercase()
        } else {
            name.to_owned()
        }
    });
    Ok((names.collect::<Vec<_>>().join(" | "), extractors))
}

/// Whether this is the text of a key, so that it would be confusing as the name of another one.
pub(super) fn is_key(text: &str) -> bool {
    let mut names = text.split(['|', ',']).map(str::trim);
    names.all(|name| {
        is_never_absent(name)
            || ["bearer", "basic-user", "host"].contains(&name)
            || ["header:", "cookie:"]
                .iter()
                .any(|begin| name.starts_with(begin))
    })
}

/// Whether every request has what the extractor of this name reads.
fn is_never_absent(name: &str) -> bool {
    is_client_ip(name) || ["everyone", "peer-ip", "method", "matched-path"].contains(&name)
}

fn extractor(
    value: &Value<'_>,
    name: &str,
    client_ip: Option<&ClientIp>,
) -> Result<Arc<dyn KeyExtractor>, ConfigError> {
    let unknown = || {
        let found = shorten_value(name);
        value.mistake(format!("found \"{found}\", expected {EXPECTED}"))
    };
    Ok(match name {
        "everyone" => Arc::new(Everyone),
        "peer-ip" => Arc::new(PeerIp),
        name if is_client_ip(name) => {
            let client_ip = client_ip.ok_or_else(|| value.mistake(NO_CLIENT_IP))?;
            Arc::new(value.check(with_prefixes(client_ip, name))?)
        }
        "bearer" => Arc::new(Bearer),
        "basic-user" => Arc::new(BasicUser),
        "host" => Arc::new(Host),
        "method" => Arc::new(Method),
        #[cfg(feature = "axum")]
        "matched-path" => Arc::new(MatchedPath),
        _ => match name.split_once(':').ok_or_else(unknown)? {
            ("header", name) if name.eq_ignore_ascii_case("host") => {
                return Err(value.mistake(FIELD_HOST));
            }
            ("header", name) => Arc::new(Header::new(header_name(name).ok_or_else(unknown)?)),
            ("cookie", name) => Arc::new(Cookie::try_from(name).map_err(|_| unknown())?),
            _ => return Err(unknown()),
        },
    })
}

/// Whether the text of a key has one of addresses.
pub(super) fn names_client_ip(text: &str) -> bool {
    text.split(['|', ',']).any(|name| is_client_ip(name.trim()))
}

/// Whether this is `client-ip`, also with prefixes.
fn is_client_ip(name: &str) -> bool {
    name == "client-ip" || name.starts_with("client-ip/")
}

const NO_PREFIX: &str = "expected \"client-ip/24\" (IPv4), \"client-ip/48\" (IPv6), or \
     \"client-ip/24/48\"";

/// 32 alone would be for IPv4, whose addresses have no more bits.
const NO_NETWORK: &str = "found \"client-ip/32\", which changes nothing: each address of IPv4 is \
     one client anyway, expected \"client-ip/32/32\" if it means networks of IPv6, or \"client-ip\"";

/// The extractor with the prefixes behind its name: one below 32 is for IPv4, a longer one for
/// IPv6.
fn with_prefixes(client_ip: &ClientIp, name: &str) -> Result<ClientIp, &'static str> {
    let prefixes = name.split('/').skip(1).map(|bits| bits.parse().ok());
    let prefixes: Vec<u8> = prefixes.collect::<Option<_>>().ok_or(NO_PREFIX)?;
    let client_ip = client_ip.clone();
    Ok(match prefixes[..] {
        [] => client_ip,
        [bits @ 1..=31] => client_ip.ipv4_prefix(bits),
        [32] => return Err(NO_NETWORK),
        [bits @ 33..=128] => client_ip.ipv6_prefix(bits),
        [ipv4 @ 1..=32, ipv6 @ 1..=128] => client_ip.ipv4_prefix(ipv4).ipv6_prefix(ipv6),
        _ => return Err(NO_PREFIX),
    })
}

/// The message for a table that trusts neither networks nor a number of proxies.
const NO_TRUST: &str = "neither trusted nor hops, expected trusted = [\"10.0.0.0/8\"] (the \
     networks of your proxies) or hops = 1 (their number); trusted = [] if clients connect \
     directly";

/// The extractor of the table `[client-ip]`, which says which proxies are trusted.
pub(super) fn client_ip(table: &Value<'_>) -> Result<ClientIp, ConfigError> {
    table.only("a table", &["trusted hops field ipv6-prefix"])?;
    let field = table.read("field", |name| {
        name.text("the name of a header field", header_name)
    })?;
    let (trusted, hops) = (table.read("trusted", trusted)?, table.read("hops", hops)?);
    if trusted.as_ref().is_some_and(Vec::is_empty) || hops == Some(0) {
        table.without("field", "no proxy is trusted, so that no field is read")?;
    }
    let mut client_ip = match (trusted, hops) {
        (Some(_), Some(_)) => {
            return Err(table.mistake("both trusted and hops, expected one of them"));
        }
        (None, Some(hops)) => ClientIp::behind_hops(hops),
        (Some(networks), None) => ClientIp::behind(networks),
        (None, None) => return Err(table.mistake(NO_TRUST)),
    };
    if let Some(name) = field {
        client_ip = client_ip.field(match name.as_str() {
            "forwarded" => Forwarding::Forwarded,
            "x-forwarded-for" => Forwarding::XForwardedFor,
            _ => Forwarding::Header(name),
        });
    }
    table.set("ipv6-prefix", client_ip, |client_ip, bits| {
        let message = "more bits than an address has, expected 0 to 128";
        Ok(client_ip.ipv6_prefix(bits.number_in(0..=128, message)?))
    })
}

/// The number of proxies that a request comes through.
fn hops(value: &Value<'_>) -> Result<usize, ConfigError> {
    const MAX: usize = ClientIp::MAX_HOPS;
    value.number_in(0..=MAX, format!("more proxies than expected, 0 to {MAX}"))
}

/// A list of networks.
pub(super) fn networks(value: &Value<'_>) -> Result<Vec<IpNet>, ConfigError> {
    let expected = "a network such as \"10.0.0.0/8\", or an address";
    value.texts("a list of networks", expected, |text| {
        let network = text.parse();
        let network = network.or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.ok().map(unmapped)
    })
}

/// The networks of proxies.
fn trusted(value: &Value<'_>) -> Result<Vec<IpNet>, ConfigError> {
    let networks = networks(value)?;
    let is_wide = networks.iter().any(is_too_wide);
    if is_wide {
        Err(value.mistake(WIDE_TRUST))
    } else {
        Ok(networks)
    }
}

/// A header field's name. Uppercase letters become lowercase ones.
fn header_name(text: &str) -> Option<HeaderName> {
    text.to_ascii_lowercase().parse().ok()
}

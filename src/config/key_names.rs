use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::config_error::{ConfigError, shorten_value};
use super::table::{Table, Value};
use crate::key::header::Header;
use crate::key::ip::{ClientIp, PeerIp, unmapped};
#[cfg(feature = "axum")]
use crate::key::matched_path::MatchedPath;
use crate::key::{Bearer, Cookie, Everyone, Forwarding, Joined, KeyExtractor, Method};

const EXPECTED: &str = "\"client-ip\", \"peer-ip\", \"bearer\", \"header:<name>\", \
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

/// The extractor of a text, or of a list of texts: the keys of a list are joined in its order.
pub(super) fn key_extractor(
    value: &Value<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<Arc<dyn KeyExtractor>, ConfigError> {
    let Some(list) = value.list() else {
        return alternatives(value, client_ip);
    };
    if list.len() == 0 {
        return Err(value.mistake(format!("an empty list, expected {EXPECTED}")));
    }
    let parts = list.map(|part| alternatives(&part, client_ip));
    Ok(Arc::new(Joined::new(parts.collect::<Result<Vec<_>, _>>()?)))
}

/// The extractor of a name, or of several with a `|` between them.
fn alternatives(
    value: &Value<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<Arc<dyn KeyExtractor>, ConfigError> {
    let names = value.text(EXPECTED, Some)?;
    let mut names = names.split('|').map(str::trim);
    if names.clone().count() > MAX_ALTERNATIVES {
        let message = format!("more alternatives than expected, at most {MAX_ALTERNATIVES}");
        return Err(value.mistake(message));
    }
    let mut last = names.next().unwrap_or_default();
    let mut extractors = extractor(value, last, client_ip)?;
    for name in names {
        let next = extractor(value, name, client_ip)?;
        if is_never_absent(last) {
            let message = format!(
                "\"{last}\" before other alternatives, expected it as the last one: every request \
                 has it"
            );
            return Err(value.mistake(message));
        }
        extractors = Arc::new(extractors.or(next));
        last = name;
    }
    Ok(extractors)
}

/// The text of a key in one form: with one blank on both sides of each `|`, and a comma between the
/// parts of a list. Two keys are the same if their texts are.
pub(super) fn key_text(value: &Value<'_>) -> Result<String, ConfigError> {
    let of_names = |value: &Value<'_>| {
        let names = value.text(EXPECTED, |names| Some(names.split('|').map(str::trim)))?;
        let names = names.map(|name| match name.starts_with("header:") {
            true => name.to_ascii_lowercase(),
            false => name.to_owned(),
        });
        Ok(names.collect::<Vec<_>>().join(" | "))
    };
    match value.list() {
        None => of_names(value),
        Some(list) => {
            let parts = list.map(|part| of_names(&part));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.join(", "))
        }
    }
}

/// Whether this is the text of a key, so that it would be confusing as the name of another one.
pub(super) fn is_key(text: &str) -> bool {
    let mut names = text.split(['|', ',']).map(str::trim);
    names.all(|name| {
        is_never_absent(name)
            || name == "bearer"
            || ["header:", "cookie:"]
                .iter()
                .any(|begin| name.starts_with(begin))
    })
}

/// Whether every request has what the extractor of this name reads.
fn is_never_absent(name: &str) -> bool {
    ["everyone", "peer-ip", "client-ip", "method", "matched-path"].contains(&name)
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
        "client-ip" => {
            let client_ip = client_ip.ok_or_else(|| value.mistake(NO_CLIENT_IP))?;
            Arc::new(client_ip.clone())
        }
        "bearer" => Arc::new(Bearer),
        "method" => Arc::new(Method),
        #[cfg(feature = "axum")]
        "matched-path" => Arc::new(MatchedPath),
        _ => match name.split_once(':').ok_or_else(unknown)? {
            ("header", name) => Arc::new(Header::new(header_name(name).ok_or_else(unknown)?)),
            ("cookie", name) => Arc::new(Cookie::try_from(name).map_err(|_| unknown())?),
            _ => return Err(unknown()),
        },
    })
}

/// The message for a table that trusts neither networks nor a number of proxies.
const NO_TRUST: &str = "neither trusted nor hops, expected trusted = [\"10.0.0.0/8\"] (the \
     networks of your proxies) or hops = 1 (their number); trusted = [] if clients connect \
     directly";

/// The extractor of the table `[client-ip]`, which says which proxies are trusted.
pub(super) fn client_ip(table: &Table<'_>) -> Result<ClientIp, ConfigError> {
    table.only(&["trusted hops field ipv6-prefix"])?;
    let field = table.read("field", |name| {
        name.text("the name of a header field", header_name)
    })?;
    let (trusted, hops) = (table.read("trusted", networks)?, table.read("hops", hops)?);
    let trusts_none = trusted.as_ref().is_some_and(Vec::is_empty) || hops == Some(0);
    if let Some(field) = table.get("field").filter(|_| trusts_none) {
        return Err(field.mistake("no proxy is trusted, so that no field is read"));
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
    let Some(bits) = table.get("ipv6-prefix") else {
        return Ok(client_ip);
    };
    match u8::try_from(bits.number()?) {
        Ok(number @ 0..=128) => Ok(client_ip.ipv6_prefix(number)),
        _ => Err(bits.mistake("more bits than an address has, expected 0 to 128")),
    }
}

/// The number of proxies that a request comes through.
fn hops(value: &Value<'_>) -> Result<usize, ConfigError> {
    const MAX: usize = ClientIp::MAX_HOPS;
    match usize::try_from(value.number()?) {
        Ok(number @ 0..=MAX) => Ok(number),
        _ => Err(value.mistake(format!("more proxies than expected, 0 to {MAX}"))),
    }
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

/// A header field's name. Uppercase letters become lowercase ones.
fn header_name(text: &str) -> Option<HeaderName> {
    text.to_ascii_lowercase().parse().ok()
}

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::table::{Mistake, Table, Value};
use crate::key::header::Header;
use crate::key::ip::{ClientIp, PeerIp};
#[cfg(feature = "axum")]
use crate::key::matched_path::MatchedPath;
use crate::key::{Everyone, Forwarding, Joined, KeyExtractor};

const EXPECTED: &str = "\"path\", \"peer-ip\", \"client-ip\", \"matched-path\" (with the feature \
     \"axum\") or \"header:<name>\"";

/// The key "client-ip" has no default for the trusted proxies: behind a proxy, all clients would
/// silently share one limit.
const NO_CLIENT_IP: &str = "the key \"client-ip\" without a table [client-ip], expected one \
     that says which proxies are trusted: trusted = [\"10.0.0.0/8\"] or hops = 1; trusted = [] if \
     clients connect directly";

/// The extractor of one name, or of a list of names: the keys of a list are joined in its order.
pub(super) fn key_extractor(
    names: &Value<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<Arc<dyn KeyExtractor>, Mistake> {
    let Some(list) = names.list() else {
        return extractor(names, client_ip);
    };
    if list.len() == 0 {
        return Err(names.mistake(format!("an empty list, expected {EXPECTED}")));
    }
    let parts = list.map(|name| extractor(&name, client_ip));
    Ok(Arc::new(Joined::new(parts.collect::<Result<Vec<_>, _>>()?)))
}

fn extractor(
    name: &Value<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<Arc<dyn KeyExtractor>, Mistake> {
    let text = name.text(EXPECTED, Some)?;
    Ok(match text {
        "path" => Arc::new(Everyone),
        "peer-ip" => Arc::new(PeerIp),
        "client-ip" => {
            let client_ip = client_ip.ok_or_else(|| name.mistake(NO_CLIENT_IP))?;
            Arc::new(client_ip.clone())
        }
        #[cfg(feature = "axum")]
        "matched-path" => Arc::new(MatchedPath),
        _ => {
            let header = text.strip_prefix("header:").and_then(header_name);
            Arc::new(Header::new(header.ok_or_else(|| name.not(EXPECTED))?))
        }
    })
}

/// The message for a table that trusts neither networks nor a number of proxies.
const NO_TRUST: &str = "neither trusted nor hops, expected trusted = [\"10.0.0.0/8\"] (the \
     networks of your proxies) or hops = 1 (their number); trusted = [] if clients connect \
     directly";

/// The extractor of the table `[client-ip]`, which says which proxies are trusted.
pub(super) fn client_ip(table: &Table<'_>) -> Result<ClientIp, Mistake> {
    table.only(&["trusted", "hops", "field", "ipv6-prefix"])?;
    let field = table.read("field", |name| {
        name.text("the name of a header field", header_name)
    })?;
    let trusted = table.read("trusted", networks)?;
    let mut client_ip = match (trusted, table.read("hops", Value::number)?) {
        (Some(_), Some(_)) => {
            return Err(table.mistake("both trusted and hops, expected one of them"));
        }
        (None, Some(hops)) => ClientIp::behind_hops(hops.try_into().unwrap_or(usize::MAX)),
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

fn networks(value: &Value<'_>) -> Result<Vec<IpNet>, Mistake> {
    let list = value
        .list()
        .ok_or_else(|| value.not("a list of networks"))?;
    let expected = "a network such as \"10.0.0.0/8\", or an address";
    let network = |text: &str| {
        text.parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
    };
    list.map(|item| item.text(expected, |text| network(text).ok()))
        .collect()
}

/// A header field's name. Uppercase letters become lowercase ones.
fn header_name(text: &str) -> Option<HeaderName> {
    text.to_ascii_lowercase().parse().ok()
}

use std::sync::Arc;

use super::client_ip_table::header_name;
use super::table::{Mistake, Value};
use crate::key::header::Header;
use crate::key::ip::client_ip::ClientIp;
use crate::key::ip::peer_ip::PeerIp;
#[cfg(feature = "axum")]
use crate::key::matched_path::MatchedPath;
use crate::key::{Joined, KeyExtractor, PathOnly};

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
        "path" => Arc::new(PathOnly),
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

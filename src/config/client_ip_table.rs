use std::ops::Range;

use http::HeaderName;
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::mistake::{Mistake, mistake};
use super::number::Number;
use super::text::Text;
use crate::key::Forwarding;
use crate::key::ip::client_ip::ClientIp;

/// The table `[client-ip]`: which proxies are trusted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClientIpTable {
    /// The networks of the proxies. Not together with `hops`.
    trusted: Option<Vec<Text<IpNet>>>,
    /// The number of the proxies. Not together with `trusted`.
    hops: Option<Number>,
    /// The field that the proxies write.
    field: Option<Text<HeaderName>>,
    /// Leading bits of an IPv6 address that count.
    ipv6_prefix: Option<Spanned<Number>>,
}

/// The message for a table that trusts neither networks nor a number of proxies.
const NO_TRUST: &str = "neither trusted nor hops, expected trusted = [\"10.0.0.0/8\"] (the \
     networks of your proxies) or hops = 1 (their number); trusted = [] if clients connect \
     directly";

impl ClientIpTable {
    /// The extractor. `span` is that of the whole table.
    pub(super) fn into_client_ip(self, span: Range<usize>) -> Result<ClientIp, Mistake> {
        let client_ip = match (self.trusted, self.hops) {
            (Some(_), Some(_)) => {
                return mistake(span, "both trusted and hops, expected one of them");
            }
            (None, Some(Number(hops))) => {
                ClientIp::behind_hops(hops.try_into().unwrap_or(usize::MAX))
            }
            (Some(networks), None) => {
                ClientIp::behind(networks.into_iter().map(|Text(network)| network))
            }
            (None, None) => return mistake(span, NO_TRUST),
        };
        let field = match self.field {
            None => Forwarding::XForwardedFor,
            Some(Text(name)) if name == http::header::FORWARDED => Forwarding::Forwarded,
            Some(Text(name)) if name == "x-forwarded-for" => Forwarding::XForwardedFor,
            Some(Text(name)) => Forwarding::Header(name),
        };
        let client_ip = client_ip.field(field);
        let Some(bits) = self.ipv6_prefix else {
            return Ok(client_ip);
        };
        match u8::try_from(bits.get_ref().0) {
            Ok(bits @ 0..=128) => Ok(client_ip.ipv6_prefix(bits)),
            _ => mistake(
                bits.span(),
                "more bits than an address has, expected 0 to 128",
            ),
        }
    }
}

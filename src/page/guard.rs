//! Which requests may change something.

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode, header};

use super::Page;

/// A field that only scripts of the page's own origin can set without asking first.
const FIELD: &str = "x-tidegate";

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
pub(super) type RefusedRequest = (StatusCode, String);

/// Whether a request is one that the page sends: a form of another site sends no JSON and no field
/// of its own.
pub(super) fn check_form(head: &Parts) -> Result<(), RefusedRequest> {
    let kind = text(&head.headers, header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "the content type is not application/json";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned()));
    }
    match text(&head.headers, HeaderName::from_static(FIELD)) {
        Some("1") => Ok(()),
        _ => Err(forbidden(
            "the field x-tidegate is missing, expected x-tidegate: 1",
        )),
    }
}

/// Whether a request may change something.
pub(super) fn check_change(page: &Page, head: &Parts) -> Result<(), RefusedRequest> {
    if !page.may_change {
        return Err(forbidden(
            "this page is read-only: Page::allow_changes lets it change something",
        ));
    }
    let mut sites = head.headers.get_all(SITE).iter();
    if sites.any(|site| site != "same-origin") {
        return Err(forbidden(
            "the request comes from another site (Sec-Fetch-Site)",
        ));
    }
    let origin = one(&head.headers, header::ORIGIN).and_then(authority_of_origin);
    let Some(origin) = origin else {
        return Err(forbidden(
            "the field Origin is missing or no origin, expected the address of this page, as \
             browsers send it: Origin: https://admin.example.com",
        ));
    };
    // The list says that no other site has this name.
    if page.lists(&origin) {
        return Ok(());
    }
    // HTTP/2 has the authority in place of the field.
    let host = match head.uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => one(&head.headers, header::HOST).and_then(|host| host.parse().ok()),
    };
    let Some(host) = host.filter(|it: &Authority| !it.as_str().contains('@')) else {
        return Err(forbidden("the field Host is missing or no host"));
    };
    if !origin.as_str().eq_ignore_ascii_case(host.as_str()) {
        return Err(forbidden(&format!(
            "the Origin is {origin} and the Host is {host}: behind a proxy that changes the Host, \
             name the Origin in Page::hosts",
        )));
    }
    if !is_own_name(origin.host()) {
        return Err(forbidden(&format!(
            "the Host is {host}, expected an IP address, localhost or a name of Page::hosts: other \
             sites could point a name of theirs here"
        )));
    }
    Ok(())
}

impl Page {
    fn lists(&self, authority: &Authority) -> bool {
        let whole = authority.as_str().to_ascii_lowercase();
        let host = authority.host().to_ascii_lowercase();
        self.hosts
            .iter()
            .any(|known| *known == whole || *known == host)
    }
}

/// Whether no other site can take this name.
fn is_own_name(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// The host and port of an origin, as browsers write them. That of a page without one is `null`.
fn authority_of_origin(origin: &str) -> Option<Authority> {
    let (scheme, authority) = origin.split_once("://")?;
    let authority: Authority = authority.parse().ok()?;
    let host = authority.host();
    // The parser takes anything behind the host for a port.
    let port = authority.port_u16().map(|port| format!(":{port}"));
    let is_whole = authority == *[host, &port.unwrap_or_default()].concat();
    (["http", "https"].contains(&scheme) && !host.is_empty() && is_whole).then_some(authority)
}

fn text(fields: &HeaderMap, name: HeaderName) -> Option<&str> {
    fields.get(name)?.to_str().ok()
}

/// The value of a field that stands there once.
fn one(fields: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = fields.get_all(name).iter();
    let value = values.next()?;
    match values.next() {
        None => value.to_str().ok(),
        Some(_) => None,
    }
}

fn forbidden(message: &str) -> RefusedRequest {
    (StatusCode::FORBIDDEN, message.to_owned())
}

//! The URL of one server. Errors never repeat a part of a URL: it may hold a password.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::connection::errors::invalid_address;
use crate::error::StoreError;

/// The server of a URL, with its user, password and database.
pub(super) fn server(url: &str) -> Result<ConnectionInfo, StoreError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if matches!(scheme, "rediss" | "valkeys") && cfg!(not(feature = "tls")) {
        return Err(needs_feature("tls"));
    }
    check(url)?;
    let info = url.into_connection_info();
    // After " - " the client repeats what it could not read: a part of the URL, perhaps a password.
    info.map_err(|error| invalid_address(error.to_string().split(" - ").next().unwrap_or_default()))
}

/// Refuses a URL that the client would read in another way than it is meant.
pub(super) fn check(url: &str) -> Result<(), StoreError> {
    // The client ignores these characters, too.
    let url = url.replace(['\t', '\r', '\n'], "");
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if scheme.ends_with("unix") {
        return Ok(());
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if rest.contains('@') {
        // The password holds one of the three characters. The client would take the user for the
        // host, and messages would show it.
        return Err(invalid_address(
            "in users, passwords and names `/`, `?`, `#` and `@` are written as %2F, %3F, %23 and \
             %40",
        ));
    }
    if rest.contains('#') {
        return Err(invalid_address(
            "what follows its `#` is unknown, and certificates are always checked",
        ));
    }
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    if hosts.contains(',') && !scheme.contains('-') {
        return Err(invalid_address(
            "it names several servers: use redis-cluster:// for a cluster, redis-sentinel:// for \
             sentinels",
        ));
    }
    Ok(())
}

/// The error for a URL that needs a feature which is switched off.
pub(super) fn needs_feature(feature: &str) -> StoreError {
    invalid_address(&format!(
        "it needs the feature `{feature}` of the crate tidegate"
    ))
}

/// The servers of these URLs, one at least. No sockets.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(super) fn servers<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
) -> Result<Vec<ConnectionInfo>, StoreError> {
    let servers = urls.into_iter().map(|url| server(url.as_ref()));
    let servers: Vec<_> = servers.collect::<Result<_, _>>()?;
    let is_socket = |info: &ConnectionInfo| matches!(info.addr(), redis::ConnectionAddr::Unix(_));
    if servers.is_empty() || servers.iter().any(is_socket) {
        return Err(invalid_address("expected the URLs of one or more hosts"));
    }
    Ok(servers)
}

/// The same, for servers that agree in user, password, database and TLS.
#[cfg(feature = "cluster")]
pub(super) fn servers_alike<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
) -> Result<Vec<ConnectionInfo>, StoreError> {
    let servers = servers(urls)?;
    let settings = |info: &ConnectionInfo| {
        let data = info.redis_settings();
        let user = data.username().map(str::to_owned);
        let password = data.password().map(str::to_owned);
        let is_plain = matches!(info.addr(), redis::ConnectionAddr::Tcp(..));
        (user, password, data.db(), is_plain)
    };
    let differ = |pair: &[ConnectionInfo]| settings(&pair[0]) != settings(&pair[1]);
    if servers.windows(2).any(differ) {
        return Err(invalid_address(
            "the nodes differ in user, password, database or TLS",
        ));
    }
    Ok(servers)
}

//! URLs of every form. Errors never repeat a part of a URL: it may hold a password.

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::RedisAddress;
use crate::connection::errors::invalid_address;
use crate::error::StoreError;

impl RedisAddress {
    /// The address of a URL of any of the forms [above](Self).
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::error::StoreErrorKind::Configuration) if
    /// the URL makes no sense, or needs a feature that is switched off. The error repeats nothing
    /// of the URL.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, StoreError> {
        let url = url.as_ref();
        check(url)?;
        match url.split_once("://") {
            Some(("redis-cluster" | "valkey-cluster", rest)) => cluster("redis", rest),
            Some(("rediss-cluster" | "valkeys-cluster", rest)) => cluster("rediss", rest),
            Some(("redis-sentinel" | "valkey-sentinel", rest)) => sentinel("redis", rest),
            Some(("rediss-sentinel" | "valkeys-sentinel", rest)) => sentinel("rediss", rest),
            _ => Self::single(url),
        }
    }
}

#[cfg(not(feature = "cluster"))]
fn cluster(_: &str, _: &str) -> Result<RedisAddress, StoreError> {
    Err(needs_feature("cluster"))
}

#[cfg(not(feature = "sentinel"))]
fn sentinel(_: &str, _: &str) -> Result<RedisAddress, StoreError> {
    Err(needs_feature("sentinel"))
}

#[cfg(feature = "cluster")]
fn cluster(scheme: &str, rest: &str) -> Result<RedisAddress, StoreError> {
    let parts = Parts::split(rest)?;
    if parts.query.is_some() {
        return Err(invalid_address("what follows its `?` is unknown"));
    }
    let db = match parts.path {
        "" => "0",
        path => path,
    };
    let nodes = parts.hosts.split(',');
    let nodes = nodes.map(|host| format!("{scheme}://{}{host}/{db}", parts.login));
    RedisAddress::cluster(nodes)?.checked()
}

#[cfg(feature = "sentinel")]
fn sentinel(scheme: &str, rest: &str) -> Result<RedisAddress, StoreError> {
    let parts = Parts::split(rest)?;
    let (master, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    let (mut username, mut password) = ("", "");
    let fields = parts.query.into_iter().flat_map(|query| query.split('&'));
    for field in fields {
        match field.split_once('=') {
            Some(("sentinel_username", value)) => username = value,
            Some(("sentinel_password", value)) => password = value,
            _ => {
                return Err(invalid_address(
                    "after its `?` only sentinel_username and sentinel_password are known",
                ));
            }
        }
    }
    let login = match (username, password) {
        ("", "") => String::new(),
        _ => format!("{username}:{password}@"),
    };
    let sentinels = parts.hosts.split(',').map(|host| {
        let port = if has_port(host) { "" } else { ":26379" };
        format!("{scheme}://{login}{host}{port}")
    });
    let mut address = RedisAddress::sentinel(sentinels, master)?;
    // Only the login and the database of this address are used.
    let data = RedisAddress::single(format!("{scheme}://{}localhost/{db}", parts.login))?;
    (address.data, address.is_tls) = (data.data, data.is_tls);
    Ok(address)
}

/// Whether a host has a port behind it.
#[cfg(feature = "sentinel")]
fn has_port(host: &str) -> bool {
    // An IPv6 address is in brackets.
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    after_brackets.contains(':')
}

/// The parts of `login@host,host/path?query`.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
struct Parts<'a> {
    /// The user and the password, with the `@` behind them.
    login: &'a str,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

#[cfg(any(feature = "cluster", feature = "sentinel"))]
impl<'a> Parts<'a> {
    /// Splits a URL behind its `://`. Fails if a host is missing.
    fn split(rest: &'a str) -> Result<Self, StoreError> {
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, hosts) = authority.split_at(at);
        if hosts.split(',').any(str::is_empty) {
            return Err(invalid_address("a host is missing"));
        }
        Ok(Self {
            login,
            hosts,
            path: path.trim_end_matches('/'),
            query,
        })
    }
}

/// The server of a URL, with its user, password and database.
pub(super) fn server(url: &str) -> Result<ConnectionInfo, StoreError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if matches!(scheme, "rediss" | "valkeys") && cfg!(not(feature = "tls")) {
        return Err(needs_feature("tls"));
    }
    check(url)?;
    let info = url.into_connection_info();
    if info.is_err() && !url.contains("://") {
        return Err(invalid_address("expected a URL such as redis://host"));
    }
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
fn needs_feature(feature: &str) -> StoreError {
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

/// The servers that these URLs name, which have to agree in user, password, database and TLS.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;

    #[test]
    fn the_missing_feature_is_named() {
        for (feature, is_there, url) in [
            (
                "cluster",
                cfg!(feature = "cluster"),
                "redis-cluster://u:s3cret@a",
            ),
            (
                "sentinel",
                cfg!(feature = "sentinel"),
                "redis-sentinel://u:s3cret@a/limits",
            ),
            ("tls", cfg!(feature = "tls"), "rediss://u:s3cret@a"),
        ] {
            match RedisAddress::from_url(url) {
                Ok(_) => assert!(is_there, "{url}"),
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Configuration);
                    let named = format!("the feature `{feature}`");
                    assert!(error.to_string().contains(&named), "{error}");
                    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
                }
            }
        }
    }
}

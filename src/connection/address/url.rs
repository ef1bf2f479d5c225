//! The URLs. Errors never repeat a part of one: it may hold a password.

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::{RedisAddress, configuration};
use crate::error::StoreError;

/// Any of them.
pub(super) fn address(url: &str) -> Result<RedisAddress, StoreError> {
    checked(url)?;
    match url.split_once("://") {
        Some(("redis-cluster" | "valkey-cluster", rest)) => cluster("redis", rest),
        Some(("rediss-cluster" | "valkeys-cluster", rest)) => cluster("rediss", rest),
        Some(("redis-sentinel" | "valkey-sentinel", rest)) => sentinel("redis", rest),
        Some(("rediss-sentinel" | "valkeys-sentinel", rest)) => sentinel("rediss", rest),
        _ => RedisAddress::single(url),
    }
}

/// One server.
pub(super) fn server(url: &str) -> Result<ConnectionInfo, StoreError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if matches!(scheme, "rediss" | "valkeys") && cfg!(not(feature = "tls")) {
        return Err(without("tls"));
    }
    checked(url)?;
    let info = url.into_connection_info();
    // Behind this the client repeats what it could not read: a part of the address, and perhaps a secret.
    info.map_err(|error| configuration(error.to_string().split(" - ").next().unwrap_or_default()))
}

/// What the client would understand in another way than it is meant.
fn checked(url: &str) -> Result<(), StoreError> {
    // As the client reads it.
    let url = url.replace(['\t', '\r', '\n'], "");
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if scheme.ends_with("unix") {
        return Ok(());
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    if behind.contains('@') {
        // A part of the password would be behind the host, and the user would be the host, and be shown.
        return Err(configuration(
            "in users, passwords and names `/`, `?`, `#` and `@` are written as %2F, %3F, %23 and %40",
        ));
    }
    if behind.contains('#') {
        return Err(configuration(
            "nothing is known of what follows its `#`, and certificates are always checked",
        ));
    }
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    if hosts.contains(',') && !scheme.contains('-') {
        return Err(configuration(
            "it is of one server: several are a cluster (redis-cluster://), or sentinels (redis-sentinel://)",
        ));
    }
    Ok(())
}

fn without(feature: &str) -> StoreError {
    configuration(&format!(
        "it needs the feature `{feature}` of the crate tidegate"
    ))
}

#[cfg(not(feature = "cluster"))]
fn cluster(_: &str, _: &str) -> Result<RedisAddress, StoreError> {
    Err(without("cluster"))
}

#[cfg(not(feature = "sentinel"))]
fn sentinel(_: &str, _: &str) -> Result<RedisAddress, StoreError> {
    Err(without("sentinel"))
}

#[cfg(feature = "cluster")]
fn cluster(scheme: &str, rest: &str) -> Result<RedisAddress, StoreError> {
    let parts = Parts::of(rest)?;
    if parts.query.is_some() {
        return Err(configuration("nothing is known of what follows its `?`"));
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
    let parts = Parts::of(rest)?;
    let (master, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    let (mut username, mut password) = ("", "");
    let fields = parts.query.into_iter().flat_map(|query| query.split('&'));
    for field in fields {
        match field.split_once('=') {
            Some(("sentinel_username", value)) => username = value,
            Some(("sentinel_password", value)) => password = value,
            _ => {
                return Err(configuration(
                    "after its `?` only sentinel_username and sentinel_password are known",
                ));
            }
        }
    }
    let login = match (username, password) {
        ("", "") => String::new(),
        _ => format!("{username}:{password}@"),
    };
    let sentinels = parts.hosts.split(',').map(|host| match has_port(host) {
        true => format!("{scheme}://{login}{host}"),
        false => format!("{scheme}://{login}{host}:26379"),
    });
    let mut address = RedisAddress::sentinel(sentinels, master)?;
    // The host is of no matter: its login and database are those of the data.
    let data = RedisAddress::single(format!("{scheme}://{}localhost/{db}", parts.login))?;
    (address.data, address.is_tls) = (data.data, data.is_tls);
    Ok(address)
}

#[cfg(feature = "sentinel")]
fn has_port(host: &str) -> bool {
    let behind_ip6 = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    behind_ip6.contains(':')
}

/// `login@host,host/path?query`
#[cfg(any(feature = "cluster", feature = "sentinel"))]
struct Parts<'a> {
    /// With its `@`.
    login: &'a str,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

#[cfg(any(feature = "cluster", feature = "sentinel"))]
impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Result<Self, StoreError> {
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, hosts) = authority.split_at(at);
        if hosts.split(',').any(str::is_empty) {
            return Err(configuration("a host is missing"));
        }
        Ok(Self {
            login,
            hosts,
            path: path.trim_end_matches('/'),
            query,
        })
    }
}

/// Several servers, each on its own.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(super) fn each<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
) -> Result<Vec<ConnectionInfo>, StoreError> {
    let servers = urls.into_iter().map(|url| server(url.as_ref()));
    let servers: Vec<_> = servers.collect::<Result<_, _>>()?;
    let is_socket = |info: &ConnectionInfo| matches!(info.addr(), redis::ConnectionAddr::Unix(_));
    if servers.is_empty() || servers.iter().any(is_socket) {
        return Err(configuration("it takes hosts, one at least"));
    }
    Ok(servers)
}

/// Several servers that one login is good for.
#[cfg(feature = "cluster")]
pub(super) fn servers<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
) -> Result<Vec<ConnectionInfo>, StoreError> {
    let servers = each(urls)?;
    let how = |info: &ConnectionInfo| {
        let settings = info.redis_settings();
        let login = (settings.username(), settings.password());
        let login = (login.0.map(str::to_owned), login.1.map(str::to_owned));
        let is_plain = matches!(info.addr(), redis::ConnectionAddr::Tcp(..));
        (login, settings.db(), is_plain)
    };
    if servers.windows(2).any(|two| how(&two[0]) != how(&two[1])) {
        return Err(configuration(
            "the nodes differ in user, password, database or TLS",
        ));
    }
    Ok(servers)
}

#[cfg(all(
    test,
    not(all(feature = "cluster", feature = "sentinel", feature = "tls"))
))]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    /// Runs where the features are not there.
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
            match address(url) {
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

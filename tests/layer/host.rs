//! Who is counted by the host that a request is for, over HTTP/1.1 and over HTTP/2.

use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tidegate::key::Host;

use crate::*;

/// The status of a request for this target: in HTTP/2 its authority is `:authority`, in HTTP/1.1 the
/// target is sent as it stands.
async fn ask(server: SocketAddr, version: u8, target: &str, hosts: &[&str]) -> u16 {
    let request = Request::get(target);
    let request = hosts
        .iter()
        .fold(request, |it, host| it.header("host", *host));
    let request = request.body(Body::empty()).expect("a request");
    let io = TokioIo::new(TcpStream::connect(server).await.expect("a server"));
    let answer = if version == 1 {
        let (mut client, connection) = http1::handshake(io).await.expect("a server");
        tokio::spawn(connection);
        client.send_request(request).await
    } else {
        let shake = http2::handshake(TokioExecutor::new(), io).await;
        let (mut client, connection) = shake.expect("a server");
        tokio::spawn(connection);
        client.send_request(request).await
    };
    answer.expect("an answer").status().as_u16()
}

/// Each way to name the key, of at most this many requests.
fn layers(max: u64) -> Vec<(&'static str, RateLimitLayer)> {
    let file = |key: &str| {
        let rule = format!("[rules.api]\nmax-count = {max}\nwindow = '1h'\nkey = {key}");
        of_toml(&rule).layer("api")
    };
    let quota = format!(
        "[rules.api]\nquotas = [{{ max-count = {max}, window = '1h', key = 'host' }}, \
         {{ max-count = 1_000, window = '1h', key = 'method' }}]"
    );
    let code = |key: Arc<dyn KeyExtractor>| RateLimitLayer::new("api", WINDOW, max).key(key);
    vec![
        ("a file", file("'host'")),
        ("alternatives", file("'host | everyone'")),
        ("a list", file("['host', 'method']")),
        ("a joint rule", of_toml(&quota).layer("api")),
        ("code", code(Arc::new(Host))),
        ("a field", code(Arc::new(Header::new("host")))),
    ]
}

/// Over both versions, and however it is spelled.
#[tokio::test]
async fn a_host_is_one_key() {
    let spellings = [
        (1, "/", "shop.example"),
        (2, "http://shop.example/", ""),
        (1, "/", "SHOP.Example:8080"),
        (1, "http://shop.example/", "shop.example"),
        (1, "http://Shop.example:80/", "shop.example."),
        (1, "/", " shop.example.:443 "),
        (2, "http://Shop.Example.:8443/", ""),
        (2, "http://shop.example/", "shop.example:443"),
        (2, "/", "shop.example"),
    ];
    for (case, layer) in layers(spellings.len() as u64) {
        let server = serve(app(layer)).await;
        for (version, target, host) in spellings {
            let hosts = if host.is_empty() { &[][..] } else { &[host] };
            let status = ask(server, version, target, hosts).await;
            assert_eq!(status, 200, "{case}: {version} {target} {host}");
        }
        assert_eq!(
            ask(server, 2, "http://shop.example/", &[]).await,
            429,
            "{case}"
        );
        assert_eq!(ask(server, 1, "/", &["shop.example"]).await, 429, "{case}");
        assert_eq!(ask(server, 1, "/", &["other.example"]).await, 200, "{case}");
        assert_eq!(
            ask(server, 2, "http://other.example/", &[]).await,
            200,
            "{case}"
        );
    }
}

/// A handler may read either of two, so none of them is counted.
#[tokio::test]
async fn two_hosts_are_malformed() {
    for (case, layer) in layers(9) {
        let server = serve(app(layer)).await;
        for (version, target, hosts) in [
            (1, "/", &["a.example", "b.example"][..]),
            (1, "/", &["a.example", "a.example"]),
            (2, "/", &["a.example", "b.example"]),
            (1, "http://a.example/", &["b.example"]),
            (2, "http://a.example/", &["b.example"]),
            (2, "http://a.example/", &["a.example", "a.example"]),
            (1, "/", &["user@a.example"]),
            (1, "/", &["a.example/b"]),
            (1, "/", &["a b"]),
            (1, "/", &[":80"]),
            (1, "/", &["[::1"]),
        ] {
            let status = ask(server, version, target, hosts).await;
            assert_eq!(status, 400, "{case}: {version} {target} {hosts:?}");
        }
    }
}

fn head(target: &str, fields: &[(&str, &str)]) -> Parts {
    from("203.0.113.9", target, fields).into_parts().0
}

#[test]
fn the_key_of_a_host() {
    for (host, key) in [
        ("shop.example", "shop.example"),
        ("xn--BCHER-kva.Example:443", "xn--bcher-kva.example"),
        ("127.0.0.1:3000", "127.0.0.1"),
        ("[2001:DB8:0::1]:443", "2001%3Adb8%3A%3A1"),
        ("[::1]", "%3A%3A1"),
    ] {
        let found = Host.extract(&head("/", &[("host", host)])).expect("a key");
        assert_eq!(found.as_str(), key);
        assert_eq!(
            Host.extract(&head(&format!("http://{host}/"), &[]))
                .expect("a key"),
            found
        );
        assert_eq!(Host.key(host), found);
        // As the page and logs show it.
        assert_eq!(Host.key_of_text(key), Some(found.clone()), "{key}");
        assert_eq!(Host.key_of_text(host), Some(found), "{host}");
    }
    let long = format!("{}.example", "a".repeat(60));
    let found = Host.extract(&head("/", &[("host", &long)])).expect("a key");
    assert_eq!(Host.key_of_text(found.as_str()), Some(found.clone()));
    assert_eq!(Host.key_of_text(&long), Some(found));
}

/// Whatever a proxy's client claims in fields of its own is not read.
#[test]
fn no_host_is_absent() {
    let claims = [
        ("x-forwarded-host", "a.example"),
        ("forwarded", "host=a.example"),
    ];
    for fields in [&claims[..], &[("host", "")], &[("host", " ")]] {
        let error = Host.extract(&head("/", fields)).expect_err("no host");
        assert_eq!(error.kind(), KeyErrorKind::Absent, "{fields:?}");
        let key = Host.or(PeerIp).extract(&head("/", fields)).expect("a peer");
        assert_eq!(key.as_str(), "203.0.113.9");
    }
    let key = Host
        .or(PeerIp)
        .extract(&head("http://A.example/", &claims))
        .expect("a host");
    assert_eq!(key.as_str(), "host|a.example");
    assert_eq!(Host.marked(Host.key("A.example:80")), key);
}

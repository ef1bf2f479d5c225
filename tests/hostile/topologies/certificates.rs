//! Certificates that make no sense: an error that says so, and never repeats what it was given.

use kit::certificates::{Certificates, HERE};
use tidegate::redis::RedisAddress;

use crate::prelude::*;

/// An error as the log may show it, with its causes.
fn text(error: &StoreError) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(" {error} {error:?}");
        cause = error.source();
    }
    text
}

/// Nothing of the secret: no line of it, and none of its bytes as a list.
fn assert_hides(text: &str, secret: &[u8]) {
    let secret_text = String::from_utf8_lossy(secret);
    for line in secret_text.lines().filter(|line| line.len() >= 8) {
        assert!(!text.contains(line), "{line:?} in {text}");
    }
    if let [one, two, three, four, ..] = secret {
        let list = format!("{one}, {two}, {three}, {four}");
        assert!(!text.contains(&list), "{list} in {text}");
    }
}

/// With a certificate of a client by each authority.
fn certificates() -> Certificates {
    let all = Certificates::make();
    all.certify("client", "authority", HERE, "10");
    all.certify("other", "unknown", HERE, "10");
    all
}

/// What `authority` takes: the authority that signed a server's certificate, also among others, or
/// a certificate that signed itself and says that it is no authority.
#[tokio::test]
async fn certificates_that_sign_themselves() {
    let pem = certificates();
    for (name, is_authority) in [("self", "FALSE"), ("both", "TRUE")] {
        let names = format!("-addext basicConstraints=critical,CA:{is_authority}");
        pem.sign_itself(name, &format!("{names} -addext subjectAltName={HERE}"));
    }
    let bundle = [pem.read("unknown.crt"), pem.read("authority.crt")].concat();
    std::fs::write(pem.path("bundle.crt"), bundle).expect("a file");
    for (shown, trusted, is_taken) in [
        ("good", "authority.crt", true),
        ("good", "bundle.crt", true),
        ("good", "good.crt", false),
        ("self", "self.crt", true),
        ("self", "authority.crt", false),
        ("both", "both.crt", false),
    ] {
        let (_server, url) = pem.server(shown, shown, "no");
        let connected = Redis::connect(pem.address(&url, trusted)).await;
        let error = connected.as_ref().err().map(ToString::to_string);
        let what = format!("{shown} by {trusted}: {error:?}");
        assert_eq!(connected.is_ok(), is_taken, "{what}");
        assert_eq!(
            what.contains("CaUsedAsEndEntity"),
            shown == "both",
            "{what}"
        );
    }
}

/// Texts that are no certificate.
fn no_certificates(pem: &Certificates) -> Vec<(&'static str, Vec<u8>)> {
    let certificate = pem.read("authority.crt");
    let key = pem.read("authority.key");
    let cut = certificate[..certificate.len() / 2].to_vec();
    let shouted = String::from_utf8_lossy(&certificate).replace("CERTIFICATE", "CERTIFICATF");
    let around = |text| {
        format!("-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n").into_bytes()
    };
    vec![
        ("nothing", Vec::new()),
        ("blanks", b" \n\n\t".to_vec()),
        ("words", b"hunter2 is the secret password".to_vec()),
        ("binary", (0..=255).cycle().take(10_000).collect()),
        ("zeros", vec![0; 100_000]),
        ("a key", key),
        ("cut off", cut),
        ("another label", shouted.into_bytes()),
        ("no contents", around("")),
        ("contents that are none", around("c2VjcmV0LWh1bnRlcjI=\n")),
        ("contents that cannot be", around("!!secret!!hunter2!!\n")),
    ]
}

fn address() -> RedisAddress {
    RedisAddress::from_url("rediss://127.0.0.1:1").expect("an address")
}

/// What is no authority is an error when it is given, or at the latest when it is used.
#[tokio::test]
async fn authorities_that_are_none() {
    let pem = certificates();
    for (name, text_of) in no_certificates(&pem) {
        let error = match address().authority(&text_of) {
            Err(error) => error,
            Ok(address) => {
                assert_hides(&format!("{address} {address:?} {address:#?}"), &text_of);
                let is_right = name.starts_with("contents");
                assert!(is_right, "{name} is taken for a certificate");
                RedisStore::connect_lazy(address).expect_err(name)
            }
        };
        let seen = error.kind();
        assert_eq!(seen, StoreErrorKind::Configuration, "{name}: {error}");
        assert_hides(&text(&error), &text_of);
    }
}

/// The same of a client's certificate, of its key, and of both the wrong way round.
#[tokio::test]
async fn client_certificates_that_are_none() {
    let pem = certificates();
    let (certificate, key) = (pem.read("client.crt"), pem.read("client.key"));
    let mut pairs = vec![
        ("swapped", key.clone(), certificate.clone()),
        ("only keys", key.clone(), key.clone()),
        (
            "only certificates",
            certificate.clone(),
            certificate.clone(),
        ),
        (
            "a key cut off",
            certificate.clone(),
            key[..key.len() / 2].to_vec(),
        ),
    ];
    for (name, text) in no_certificates(&pem) {
        pairs.push((name, text.clone(), key.clone()));
        if name != "a key" {
            pairs.push((name, certificate.clone(), text.clone()));
            pairs.push((name, text.clone(), text));
        }
    }
    let mut accepted = Vec::new();
    for (name, certificate, key) in pairs {
        let error = match address().client_certificate(&certificate, &key) {
            Err(error) => error,
            Ok(address) => {
                let shown = format!("{address} {address:?} {address:#?}");
                assert_hides(&shown, &key);
                if !name.starts_with("contents") {
                    accepted.push(name);
                }
                match RedisStore::connect_lazy(address) {
                    Err(error) => error,
                    // Contents that are no certificate are found when a connection is made.
                    Ok(_) => {
                        if !name.starts_with("contents") {
                            accepted.push("and connected lazily");
                        }
                        continue;
                    }
                }
            }
        };
        let seen = error.kind();
        assert_eq!(seen, StoreErrorKind::Configuration, "{name}: {error}");
        assert_hides(&text(&error), &key);
        assert_hides(&text(&error), &certificate);
    }
    assert_eq!(accepted, [""; 0], "taken for a certificate and its key");
}

/// A server of another authority, a client without or with a stranger's certificate: an error in
/// bounded time that repeats no text. With the right ones it decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers() {
    let pem = certificates();
    let (_server, url) = pem.server("good", "authority", "yes");
    let address = |authority: &str, client: Option<&str>| {
        let address = pem.address(&url, authority);
        match client {
            None => address,
            Some(name) => {
                let certificate = pem.read(&format!("{name}.crt"));
                let key = pem.read(&format!("{name}.key"));
                address.client_certificate(certificate, key).expect("both")
            }
        }
    };
    let store = RedisStore::connect(address("authority.crt", Some("client"))).await;
    let store = store.expect("the right ones").timeout(PATIENT);
    let one = take(&rule("tls", 5, HOUR), "");
    assert!(store.take(&one).await.expect("a decision").is_allowed());
    for (authority, client) in [
        ("unknown.crt", Some("client")),
        ("authority.crt", None),
        ("authority.crt", Some("other")),
        ("good.crt", Some("other")),
    ] {
        let began = Instant::now();
        let error = RedisStore::connect(address(authority, client)).await;
        let (error, took) = (error.expect_err("strangers"), began.elapsed());
        assert!(took < RedisStore::CONNECT_TIMEOUT + 2 * SECOND, "{took:?}");
        let text = text(&error);
        println!("{authority} {client:?}: {error:?}");
        assert!(!error.to_string().is_empty());
        for name in words("authority.crt unknown.crt client.crt client.key other.key") {
            assert_hides(&text, &pem.read(name));
        }
    }
}

/// A certificate with the key of another one never connects, and is an error that repeats neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_certificate() {
    let pem = certificates();
    let (_server, url) = pem.server("good", "authority", "yes");
    let address = pem.address(&url, "authority.crt");
    let (certificate, key) = (pem.read("client.crt"), pem.read("other.key"));
    let error = match address.client_certificate(&certificate, &key) {
        Err(error) => error,
        Ok(address) => RedisStore::connect(address).await.expect_err("they differ"),
    };
    assert_hides(&text(&error), &key);
    assert_hides(&text(&error), &certificate);
}

/// Whoever names a client certificate means to show one: a text without a certificate never makes a
/// connection without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_that_is_never_shown() {
    let pem = certificates();
    let (server, url) = pem.server("good", "authority", "yes");
    kit::run(&server, "CONFIG SET tls-auth-clients optional");
    let address = pem.address(&url, "authority.crt");
    let key = pem.read("client.key");
    let connected = match address.client_certificate("not a certificate", &key) {
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::Configuration);
            return;
        }
        Ok(address) => RedisStore::connect(address).await,
    };
    let error = connected.expect_err("it connected without a certificate");
    println!("{error:?}");
    assert_hides(&text(&error), &key);
}

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

/// What is given is an error when it is given, or at the latest when it is used, which repeats
/// nothing of it. Contents that make no sense may be found when a connection is made: then it says
/// `false`.
fn is_told(name: &str, given: &[&[u8]], made: Result<RedisAddress, StoreError>) -> bool {
    let error = match made {
        Err(error) => error,
        Ok(address) => {
            let shown = format!("{address} {address:?} {address:#?}");
            given.iter().for_each(|it| assert_hides(&shown, it));
            let is_late = name.starts_with("contents");
            assert!(is_late, "{name} is taken for a certificate");
            match RedisStore::connect_lazy(address) {
                Err(error) => error,
                Ok(_) => return false,
            }
        }
    };
    let seen = error.kind();
    assert_eq!(seen, StoreErrorKind::Configuration, "{name}: {error}");
    given.iter().for_each(|it| assert_hides(&text(&error), it));
    true
}

#[tokio::test]
async fn authorities_that_are_none() {
    for (name, text) in no_certificates(&certificates()) {
        let is_told = is_told(name, &[&text], address().authority(&text));
        assert!(is_told, "{name}");
    }
}

/// The same of a client's certificate, of its key, and of both the wrong way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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
    for (name, certificate, key) in pairs {
        let made = address().client_certificate(&certificate, &key);
        let is_told = is_told(name, &[&certificate, &key], made);
        assert!(is_told || name.starts_with("contents"), "{name}");
    }
}

/// A server of another authority, a client without or with a stranger's certificate, or with the key
/// of another one: an error in bounded time that repeats no text. With the right ones it decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers() {
    let pem = certificates();
    let (_server, url) = pem.server("good", "authority", "yes");
    let address = |authority: &str, client: Option<[&str; 2]>| {
        let address = pem.address(&url, authority);
        match client {
            None => address,
            Some([certificate, key]) => {
                let certificate = pem.read(&format!("{certificate}.crt"));
                let key = pem.read(&format!("{key}.key"));
                address.client_certificate(certificate, key).expect("both")
            }
        }
    };
    let store = RedisStore::connect(address("authority.crt", Some(["client"; 2]))).await;
    let store = store.expect("the right ones").timeout(PATIENT);
    let one = take(&rule("tls", 5, HOUR), "");
    assert!(store.take(&one).await.expect("a decision").is_allowed());
    for (authority, client) in [
        ("unknown.crt", Some(["client"; 2])),
        ("authority.crt", None),
        ("authority.crt", Some(["other"; 2])),
        ("good.crt", Some(["other"; 2])),
        ("authority.crt", Some(["client", "other"])),
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

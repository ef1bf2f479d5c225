//! The forms of closures that the documentation shows in the middle of a text; those of its code
//! blocks are doctests. And closures that use what they have captured.

use tidegate::key::Extension;

use crate::*;

fn layer(max: u64) -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, max)
}

/// What a request of this tenant is answered: `1` if it is allowed.
async fn send(layer: &RateLimitLayer, tenant: &str) -> Answer {
    ask(
        &kit::app(layer.clone()),
        "/",
        &format!("x-tenant: {tenant}"),
    )
    .await
}

/// No closure names a type of its arguments.
#[tokio::test]
async fn closures_use_what_they_have_captured() {
    let tenants: Arc<HashSet<String>> = Arc::new(HashSet::from(["acme".to_owned()]));
    let (denials, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, failed) = (Arc::clone(&denials), Arc::clone(&failures));
    let layer = layer(1)
        .key_by(move |head| {
            let tenant = head.headers.get("x-tenant").and_then(|it| it.to_str().ok());
            let tenant = tenant.filter(|name| tenants.contains(*name));
            let tenant = tenant.ok_or_else(|| KeyError::malformed("an unknown tenant"))?;
            Ok(tenant.into())
        })
        .degrade_fn(move |denied| {
            let counted = Arc::clone(&counted);
            async move {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                format!("denial {number} of {}", denied.key)
            }
        })
        .on_error_fn(move |failure| {
            let failed = Arc::clone(&failed);
            async move {
                failed.fetch_add(1, Ordering::Relaxed);
                match failure.is_inner() {
                    true => Recovery::Propagate,
                    false => "who are you?".into(),
                }
            }
        });
    for (tenant, expected) in [
        ("acme", "1"),
        ("acme", "denial 0 of acme"),
        ("acme", "denial 1 of acme"),
        ("other", "who are you?"),
    ] {
        assert_eq!(send(&layer, tenant).await.body, expected);
    }
    assert_eq!(denials.load(Ordering::Relaxed), 2);
    assert_eq!(failures.load(Ordering::Relaxed), 1);
}

/// Also with types that are named, as setters that take any callback need them.
#[test]
fn closures_of_the_documentation() {
    #[derive(Clone)]
    struct Connection(Option<SocketAddr>);
    impl Connection {
        fn remote_addr(&self) -> Option<SocketAddr> {
            self.0
        }
    }
    #[derive(Clone)]
    struct Value {
        id: u64,
    }
    let _ = layer(1)
        .exempt(|head| head.method != Method::POST)
        .cost(|head| match head.uri.path().starts_with("/export") {
            true => 10,
            false => 1,
        })
        .key(Extension::<Value>::new(|value| value.id))
        .key(PeerIp.peer(|extensions| extensions.get::<Connection>()?.remote_addr()))
        .key(|_: &http::request::Parts| Ok(Key::default()));
    let _ = Limits::new(Rules::default())
        .peer(|extensions| extensions.get::<Connection>()?.remote_addr());
}

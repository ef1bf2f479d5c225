//! Whose requests count together, and under which quotas.

use super::*;

/// How many requests a layer of its own has allowed and denied.
fn decided(layer: &RateLimitLayer) -> (u64, u64) {
    let counted = layer.snapshot().expect("it has a rule");
    let of = |outcome| counted.decisions(outcome);
    (of(DecisionOutcome::Allowed), of(DecisionOutcome::Denied))
}

#[tokio::test]
async fn each_client_address() {
    let redis = Redis::start();
    let login = RateLimitLayer::new("login", WINDOW, 5).key(PeerIp);
    let login = login.store(store_on(&redis).await);
    let client = serve(limited(login.clone())).await;

    assert_eq!(client.statuses("POST /", &[]).await, [200; 5]);
    client.denied("POST /", &[], "login").await;
    let other = client.from("127.0.0.2");
    assert_eq!(other.status("POST /", &[]).await, 200);
    assert_eq!(decided(&login), (6, 1));
}

#[tokio::test]
async fn the_api_key_else_the_address() {
    let file = "
        [rules.api]
        key = 'bearer | header:x-api-key | peer-ip'
        max-count = 1
        window = '1m'
        ";
    let in_code =
        Limits::new([per_minute("api", 1)]).key(Bearer.or(Header::new("x-api-key")).or(PeerIp));
    for limits in [of_toml(file), in_code] {
        let (client, limits, _redis) = limiting(limits, "api").await;
        for caller in [
            &[("authorization", "Bearer a")][..],
            &[("authorization", "Bearer b")],
            &[("x-api-key", "a")],
            &[],
        ] {
            let statuses = client.statuses("GET /", caller).await;
            assert_eq!(statuses, [200, 429], "{caller:?}");
        }
        assert_eq!(client.from("127.0.0.2").status("GET /", &[]).await, 200);
        assert_eq!(counted(&limits, "api"), (5, 4));
        // Empty ones are those of the address, and two equal ones are one.
        for caller in [
            [("authorization", "Bearer "), ("x-api-key", "")],
            [("authorization", "Bearer a"), ("authorization", "Bearer a")],
        ] {
            assert_eq!(client.status("GET /", &caller).await, 429, "{caller:?}");
        }
        assert_eq!(counted(&limits, "api"), (5, 6));
    }
}

#[tokio::test]
async fn behind_nginx_a_load_balancer_or_cloudflare() -> Outcome {
    let rule = "[rules.login]\nkey = 'client-ip'\nmax-count = 1\nwindow = '1m'\n";
    let file = |client_ip: &str| Limits::from_toml(&format!("client-ip = {client_ip}\n{rule}"));
    let code = |client: ClientIp| Limits::new([per_minute("login", 1)]).key(client);
    let networks = || Ok::<_, Box<dyn std::error::Error>>(["127.0.0.0/8".parse()?]);
    let field = |name| Forwarding::Header(HeaderName::from_static(name));
    let cloudflare = ClientIp::behind(networks()?).field(field("cf-connecting-ip"));
    let fly = ClientIp::behind_hops(1).field(field("fly-client-ip"));
    let nginx = code(ClientIp::behind(networks()?));
    let usual = "x-forwarded-for";
    for (proxy, name, limits) in [
        ("nginx", usual, nginx),
        ("nginx", usual, file("{ trusted = ['127.0.0.0/8'] }")?),
        ("ALB", usual, code(ClientIp::behind_hops(1))),
        ("ALB", usual, file("{ hops = 1 }")?),
        ("Cloudflare", "cf-connecting-ip", code(cloudflare)),
        ("Fly.io", "fly-client-ip", code(fly)),
    ] {
        let (client, limits, _redis) = limiting(limits, "login").await;
        for (address, status) in [
            ("203.0.113.9", 200),
            ("203.0.113.9", 429),
            ("203.0.113.1", 200),
        ] {
            // What the client made up itself stands in front of what the proxy has seen.
            let lie = format!("198.51.100.{status}, {address}");
            let value = if name == usual { &*lie } else { address };
            let fields = [("x-real-ip", "198.51.100.1"), (name, value)];
            assert_eq!(client.status("GET /", &fields).await, status, "{proxy}");
        }
        assert_eq!(counted(&limits, "login"), (2, 1));
    }
    Ok(())
}

#[tokio::test]
async fn only_anonymous_users() {
    let redis = Redis::start();
    let layer = RateLimitLayer::new("search", WINDOW, 20)
        .key(PeerIp)
        .exempt(|head| head.extensions.get::<User>().is_some())
        .store(store_on(&redis).await);
    let client = serve(limited(layer.clone()).layer(from_fn(authenticate))).await;

    let anna = [("x-user", "anna")];
    assert_eq!(client.statuses("GET /", &anna).await, [200; 25]);
    assert_eq!(client.statuses("GET /", &[]).await, [200; 20]);
    client.denied("GET /", &[], "search").await;
    assert_eq!(client.status("GET /", &anna).await, 200);
    assert_eq!(decided(&layer), (20, 1));
}

#[tokio::test]
async fn everybody_together_and_each_client() {
    let each = per_minute("each", 2).with_key(PeerIp);
    let limits = Limits::new([each, per_minute("all", 3)]);
    let (limits, _redis) = on_redis(limits).await;
    let app = Router::new()
        .route("/", get(async || "1"))
        .layer(limits.layer("all"))
        .layer(limits.layer("each"));
    let client = serve(app).await;

    assert_eq!(client.statuses("GET /", &[]).await, [200, 200]);
    // Denied for itself, it uses up nothing of the others.
    client.denied("GET /", &[], "each").await;
    let other = client.from("127.0.0.2");
    assert_eq!(other.status("GET /", &[]).await, 200);
    let denied = other.send("GET /", &[], "").await;
    denied.assert_status(429);
    let violated = "\"violated-policies\":[\"all\"]";
    assert!(denied.text.contains(violated), "{}", denied.text);
    assert_eq!(counted(&limits, "each"), (4, 1));
    assert_eq!(counted(&limits, "all"), (3, 1));
}

#[tokio::test]
async fn a_route_and_a_method() {
    let limits = Limits::new([per_minute("write", 1), per_minute("api", 3)]);
    let (limits, _redis) = on_redis(limits).await;
    let notes =
        get(async || "notes").merge(post(async || "noted").route_layer(limits.layer("write")));
    let app = Router::new()
        .route("/notes", notes)
        .route("/others", get(async || "others"))
        .route_layer(limits.layer("api").key((MatchedPath, Method, PeerIp)));
    let client = serve(app).await;

    // What no handler answers is not a POST.
    assert_eq!(client.status("PUT /notes", &[]).await, 405);
    assert_eq!(counted(&limits, "write"), (0, 0));
    assert_eq!(client.status("POST /notes", &[]).await, 200);
    client.denied("POST /notes", &[], "write").await;
    assert_eq!(client.statuses("GET /notes", &[]).await, [200, 200, 200]);
    client.denied("GET /notes", &[], "api").await;
    assert_eq!(client.status("GET /others", &[]).await, 200);
    let other = client.from("127.0.0.2");
    assert_eq!(other.status("GET /notes", &[]).await, 200);
    assert_eq!(counted(&limits, "write"), (1, 1));
    assert_eq!(counted(&limits, "api"), (8, 1));
}

#[tokio::test]
async fn another_limit_for_each_plan() {
    let limits = of_toml(
        "
        [rules.api]
        max-count = 2
        window = '1m'
        plans.pro = { max-count = 600, window = '1m' }
        ",
    );
    let (limits, _redis) = on_redis(limits.key(Header::new("x-user"))).await;
    let client = serve(limited(limits.layer("api")).layer(from_fn(authenticate))).await;

    let acme = [("x-user", "acme")];
    assert_eq!(client.statuses("GET /", &acme).await, [200, 200, 429]);
    // An upgrade keeps what was used.
    let pro = [("x-user", "acme"), ("x-plan", "pro")];
    let admitted = client.send("GET /", &pro, "").await;
    let left = admitted.field("ratelimit");
    assert!(left.contains(";r=597;"), "{left}");
    assert_eq!(counted(&limits, "api"), (3, 1));
    let plan = &crate::counted(&limits, "api").plans[0];
    assert_eq!((&*plan.name, plan.allowed, plan.denied), ("pro", 1, 0));
}

#[tokio::test]
async fn limits_of_tenants_from_a_table() {
    let (limits, _redis) = on_redis(Limits::new([per_minute("api", 1)])).await;
    let table: Arc<RwLock<HashMap<String, Plan>>> = Arc::default();
    let known = Arc::clone(&table);
    let layer = limits
        .layer("api")
        .key(Header::new("x-tenant"))
        .plan_value(move |head| {
            let tenant = head.headers.get("x-tenant")?.to_str().ok()?;
            known.read().ok()?.get(tenant).cloned()
        });
    let client = serve(limited(layer)).await;

    let acme = [("x-tenant", "acme")];
    assert_eq!(client.statuses("GET /", &acme).await, [200, 429]);
    let of_acme = ("acme".to_owned(), plan_value([Quota::per_minute(3)]));
    table.write().expect("no panic").extend([of_acme]);
    assert_eq!(client.statuses("GET /", &acme).await, [200, 200, 429]);
    // The rule's own quota is for those whom the table does not know.
    let other = [("x-tenant", "other")];
    assert_eq!(client.statuses("GET /", &other).await, [200, 429]);
    assert_eq!(counted(&limits, "api"), (4, 3));
}

//! Which requests count, what clients are told, and what is given back.

use super::*;

/// An application with `/healthz`, behind a limit for everybody together.
async fn with_health_checks(limits: &Limits) -> client::Client {
    let app = Router::new()
        .route("/", get(async || "1"))
        .route("/healthz", get(async || "ok"))
        .layer(limits.layer("api"));
    serve(app).await
}

#[tokio::test]
async fn skip_health_checks() {
    let file = "
        exempt = { paths = ['/healthz'], methods = ['OPTIONS'] }
        [rules.api]
        max-count = 1
        window = '1m'
        ";
    let in_code = Limits::new([per_minute("api", 1)])
        .exempt(|head| head.uri.path() == "/healthz")
        .exempt(|head| head.method == http::Method::OPTIONS);
    for limits in [of_toml(file), in_code] {
        let (limits, _redis) = on_redis(limits).await;
        let client = with_health_checks(&limits).await;
        assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
        let healthy = client.send("GET /healthz", &[], "").await;
        assert_eq!((healthy.status, healthy.field("ratelimit")), (200, ""));
        // No route answers this method: the 405 is the router's, and no limit denied it.
        assert_eq!(client.statuses("OPTIONS /", &[]).await, [405, 405]);
        assert_eq!(counted(&limits, "api"), (1, 1));
    }
}

#[tokio::test]
async fn allow_the_network_of_the_office() -> Outcome {
    let file = "
        exempt = { networks = ['192.0.2.0/24'] }
        client-ip = { trusted = ['127.0.0.0/8'] }
        [rules.api]
        max-count = 1
        window = '1m'
        ";
    let office: IpNet = "192.0.2.0/24".parse()?;
    let client = ClientIp::behind(["127.0.0.0/8".parse()?]);
    let in_code = Limits::new([per_minute("api", 1)])
        .exempt(move |head| client.address(head).is_ok_and(|ip| office.contains(&ip)));
    for limits in [of_toml(file), in_code] {
        let (client, limits, _redis) = limiting(limits, "api").await;
        let office = [("x-forwarded-for", "192.0.2.7")];
        assert_eq!(client.statuses("GET /", &office).await, [200; 3]);
        // Whoever only says so is not of the office.
        let liar = [("x-forwarded-for", "192.0.2.7, 203.0.113.9")];
        assert_eq!(client.statuses("GET /", &liar).await, [200, 429]);
        assert_eq!(counted(&limits, "api"), (1, 1));
    }
    Ok(())
}

#[tokio::test]
async fn a_json_error_of_your_own() -> Outcome {
    let limits = Limits::new([per_minute("api", 1)]).degrade_fn(async |denied| {
        let wait = denied.decision.retry_after().unwrap_or_default();
        let seconds = wait.as_secs_f64().ceil();
        let error = format!(r#"{{"error":"too many requests","again_in":{seconds}}}"#);
        (DENIED, [("content-type", "application/json")], error)
    });
    let (client, limits, _redis) = limiting(limits, "api").await;

    assert_eq!(client.status("GET /", &[]).await, 200);
    let denied = client.denied("GET /", &[], "api").await;
    assert_eq!(denied.field("content-type"), "application/json");
    let error: serde_json::Value = serde_json::from_str(&denied.text)?;
    assert_eq!(error["error"], "too many requests");
    assert_eq!(error["again_in"].to_string(), denied.field("retry-after"));
    assert_eq!(counted(&limits, "api"), (1, 1));
    Ok(())
}

#[tokio::test]
async fn only_failed_logins() {
    async fn password_is_right(password: &str) -> bool {
        password == "swordfish"
    }
    async fn login(password: String) -> StatusCode {
        match password_is_right(&password).await {
            true => StatusCode::OK,
            false => StatusCode::UNAUTHORIZED,
        }
    }
    async fn login_by_hand(charges: Charges, password: String) -> StatusCode {
        if !password_is_right(&password).await {
            return StatusCode::UNAUTHORIZED;
        }
        charges.of("by-hand").refund().await.ok();
        StatusCode::OK
    }
    let limits = of_toml(
        r#"
        [rules.login]
        max-count = 5
        window = "1m"
        key = "peer-ip"
        refund-on = ["2xx", "3xx"]

        [rules.by-hand]
        max-count = 5
        window = "1m"
        key = "peer-ip"
        "#,
    );
    let (limits, _redis) = on_redis(limits).await;
    let by_hand = post(login_by_hand).layer(limits.layer("by-hand"));
    let app = Router::new()
        .route("/login", post(login).layer(limits.layer("login")))
        .route("/by-hand", by_hand);
    let client = serve(app).await;

    for rule in ["login", "by-hand"] {
        let line = format!("POST /{rule}");
        for _ in 0..7 {
            client
                .send(&line, &[], "swordfish")
                .await
                .assert_status(200);
            assert!(limits.flush(PATIENT).await);
        }
        assert_eq!(client.statuses(&line, &[]).await, [401; 5]);
        let denied = client.send(&line, &[], "swordfish").await;
        denied.assert_denied(rule);
        assert_eq!(counted(&limits, rule), (12, 1));
        assert_eq!(crate::counted(&limits, rule).refunds, 7);
    }
}

#[tokio::test]
async fn tokens_that_are_known_afterwards() -> Outcome {
    async fn ask(charges: Charges, question: String) -> String {
        let used = question.parse().unwrap_or(0);
        charges.of("tokens").settle(used).await.ok();
        format!("{used} tokens")
    }
    let rule = per_minute("tokens", 10_000).with_key(Header::new("x-user"));
    let (limits, _redis) = on_redis(Limits::new([rule])).await;
    let layer = limits.layer("tokens").cost(|_| 4_000);
    let client = serve(Router::new().route("/", post(ask).layer(layer))).await;

    let alice = [("x-user", "alice")];
    for used in ["1500", "4000", "500"] {
        let answer = client.send("POST /", &alice, used).await;
        assert_eq!(answer.text, format!("{used} tokens"));
    }
    let key = Header::new("x-user").key("alice");
    assert_eq!(left(&limits, "tokens", key).await, 4_000);
    // As many as that may be reserved, and not one more.
    assert_eq!(client.send("POST /", &alice, "1").await.status, 200);
    assert_eq!(client.send("POST /", &alice, "1").await.status, 429);

    let admitted = limits.check("tokens", "bob").cost(4_000).await?;
    let charge = admitted.charge.expect("it was charged");
    assert_eq!(charge.settle(1_500).await?.given_back, 2_500);
    let counted = crate::counted(&limits, "tokens");
    assert_eq!(counted.units - counted.refunded_units, 6_001 + 1_500);
    Ok(())
}

//! Decisions without an HTTP request, and waiting.

use super::*;

/// A socket whose messages are lines: what carries them makes no difference to the check.
#[tokio::test]
async fn messages_of_a_socket() -> Outcome {
    async fn chat(limits: Limits, socket: TcpStream, user: &str) -> std::io::Result<()> {
        let mut socket = BufReader::new(socket);
        let mut message = String::new();
        while socket.read_line(&mut message).await? > 0 {
            let answer = match limits.check("chat", user).await {
                Ok(_) => std::mem::take(&mut message),
                Err(refused) => format!("{refused}\n"),
            };
            message.clear();
            socket.get_mut().write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
    let (limits, _redis) = on_redis(Limits::new([per_minute("chat", 1)])).await;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = BufReader::new(TcpStream::connect(listener.local_addr()?).await?);
    let (socket, _) = listener.accept().await?;
    let of_chat = limits.clone();
    tokio::spawn(async move { chat(of_chat, socket, "alice").await });

    let mut answers = String::new();
    for message in ["hello\n", "hello?\n"] {
        client.get_mut().write_all(message.as_bytes()).await?;
        client.read_line(&mut answers).await?;
    }
    let expected = "hello\nthe limit of chat is used up, again in ";
    assert!(answers.starts_with(expected), "{answers}");
    assert!(limits.check("chat", "bob").await.is_ok());
    assert_eq!(counted(&limits, "chat"), (2, 1));
    Ok(())
}

#[tokio::test]
async fn a_login_by_the_user_name_in_the_body() {
    async fn login(State(limits): State<Limits>, user: String) -> Result<String, Refused> {
        limits.check("login", &*user).await?;
        Ok(format!("welcome, {user}"))
    }
    let (limits, _redis) = on_redis(Limits::new([per_minute("login", 1)])).await;
    let app = Router::new().route("/login", post(login));
    let client = serve(app.with_state(limits.clone())).await;

    for user in ["alice", "bob"] {
        let welcome = client.send("POST /login", &[], user).await;
        welcome.assert_status(200);
        assert_eq!(welcome.text, format!("welcome, {user}"));
        let denied = client.send("POST /login", &[], user).await;
        denied.assert_denied("login");
    }
    assert_eq!(counted(&limits, "login"), (2, 2));
}

/// A refusal that a handler returns is its own answer, as the status is that it makes of one: what
/// it has done before is charged.
#[tokio::test]
async fn a_refused_check_in_a_handler_gives_nothing_back() {
    async fn login(State(limits): State<Limits>) -> Result<(), Refused> {
        limits.check("account", "alice").await?;
        Ok(())
    }
    async fn by_hand(State(limits): State<Limits>) -> StatusCode {
        match limits.check("account", "alice").await {
            Ok(_) => OK,
            Err(_) => DENIED,
        }
    }
    let limits = Limits::new([refunding("outer", 10, &["5xx"]), per_minute("account", 0)]);
    let (limits, _redis) = on_redis(limits).await;
    let app = Router::new()
        .route("/login", post(login))
        .route("/by-hand", post(by_hand))
        .route_layer(limits.layer("outer"))
        .with_state(limits.clone());
    let client = serve(app).await;
    let left = async || {
        assert!(limits.flush(PATIENT).await);
        left(&limits, "outer", Key::default()).await
    };
    assert_eq!(client.status("POST /login", &[]).await, 429);
    assert_eq!(left().await, 9);
    assert_eq!(client.status("POST /by-hand", &[]).await, 429);
    assert_eq!(left().await, 8);
}

/// They travel together: eight questions depart, and the next flight carries the others. Then all
/// travel in flights.
#[tokio::test]
async fn several_checks_at_once() {
    let (limits, redis) = on_redis(Limits::new([per_minute("mail", 1)])).await;
    let users: Vec<_> = (0..50).map(|number| format!("user-{number}")).collect();
    let ask = async || {
        let checks = users.iter().map(|user| limits.check("mail", user.as_str()));
        join_all(checks.map(IntoFuture::into_future)).await
    };
    assert!(ask().await.iter().all(Result::is_ok));
    assert!(ask().await.iter().all(Result::is_err));
    assert_eq!(counted(&limits, "mail"), (50, 50));
    let calls = redis.script_calls();
    assert!((1..=16).contains(&calls), "{calls}");
}

#[tokio::test]
async fn a_job_that_may_call_a_partner() -> Outcome {
    use tidegate::limiter::{Rate, RateLimiter};

    let redis = Redis::start();
    let api = serve(Router::new().route("/", get(async || "1"))).await;
    let began = Instant::now();
    let (mut at, window) = (Vec::new(), millis(500));
    let mut processes = Vec::new();
    for _ in 0..2 {
        let redis = tidegate::Redis::connect(&*redis.url).await?;
        let partner = RateLimiter::new(&redis, "partner").rate(Rate::overall(5, window)?);
        processes.push((redis, partner));
    }
    for call in 0..8 {
        let (_, partner) = &processes[call % 2];
        partner.acquire(1).await?;
        at.push(began.elapsed());
        assert_eq!(api.status("GET /", &[]).await, 200);
    }
    // The sixth call has to wait until the first has left the window, whoever makes it.
    assert!(at[5] >= window, "{at:?}");
    let rate = processes[0].1.stored_rate().await?;
    assert_eq!(rate.map(|rate| rate.permits()), Some(5));
    Ok(())
}

#[tokio::test]
async fn a_client_that_paces_its_own_calls() -> Outcome {
    let redis = Redis::start();
    let store = Arc::new(store_on(&redis).await);
    let calls = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&calls);
    let count = async move || called.fetch_add(1, Ordering::Relaxed).to_string();
    let api = serve(Router::new().route("/", get(count))).await;
    let client = service_fn(move |_: Request| async move {
        let answer = api.send("GET /", &[], "").await;
        Ok::<_, Infallible>(answer.text.into_response())
    });
    let paced = RateLimitLayer::new("partner", SECOND, 2)
        .wait(PATIENT)
        .store(Arc::clone(&store))
        .layer(client);
    let began = Instant::now();
    for _ in 0..3 {
        let answer = paced.clone().oneshot(crate::get("/")).await?;
        assert_eq!(answer.status(), OK);
    }
    assert!(began.elapsed() >= SECOND);

    // A wait that would be in vain does not begin. It answers by itself: nobody is called.
    let paced = RateLimitLayer::new("another", WINDOW, 1)
        .wait(5 * SECOND)
        .store(store)
        .layer(client);
    for status in [OK, DENIED] {
        let answer = paced.clone().oneshot(crate::get("/")).await?;
        assert_eq!(answer.status(), status);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    Ok(())
}

//! Who says which outcome a response is: the response alone, never its request.

use http_body_util::{BodyExt, Full};
use tidegate::rule::Lockout;
use tidegate::store::Attempts;
use tidegate::warning::WarningKind;

use crate::*;

/// What a client may say of its request.
const CONTENT_TYPES: [&str; 12] = [
    "",
    "application/json",
    "application/octet-stream",
    "application/connect+json",
    "application/connect+proto",
    "application/grpc",
    "application/grpc+proto",
    "application/grpc-web",
    "application/grpc-web-text+proto",
    "Application/GRPC+x",
    "application/grpcx",
    "application/json, content-type: application/grpc",
];

/// An answer of a handler.
struct Answered {
    status: u16,
    /// The lines of `grpc-status` in its head.
    head: &'static [&'static str],
    trailers: Option<&'static str>,
    /// Its content type: `*` is that of the request.
    content_type: &'static str,
    /// Its statuses by its head.
    statuses: &'static [&'static str],
    /// Those that only failures know.
    of_failures: &'static [&'static str],
    /// Those that calls to a partner find in the trailers.
    of_calls: &'static [&'static str],
}

const GRPC: &str = "application/grpc";
const JSON: &str = "application/json";

/// Status, `grpc-status` of the head and of the trailers, content type, statuses.
#[rustfmt::skip]
const ANSWERS: [Answered; 15] = [
    answered(200, &[], None, JSON, &["200"], &[], &[]),
    answered(200, &[], None, GRPC, &[], &["200"], &[]),
    answered(401, &[], None, JSON, &["401"], &[], &[]),
    answered(401, &[], None, "*", &["401"], &[], &[]),
    answered(503, &[], None, GRPC, &["503"], &[], &[]),
    answered(401, &["16"], None, GRPC, &["401", "grpc-16"], &[], &[]),
    answered(200, &["0"], None, GRPC, &["200", "grpc-0"], &[], &[]),
    answered(200, &["0"], None, "*", &["200", "grpc-0"], &[], &[]),
    answered(200, &["16"], None, GRPC, &["grpc-16"], &[], &[]),
    answered(200, &["16"], None, "*", &["grpc-16"], &[], &[]),
    answered(200, &["0", "16"], None, "*", &["grpc-0", "grpc-16"], &[], &[]),
    answered(200, &[], Some("16"), GRPC, &[], &["200", "grpc-16"], &["grpc-16"]),
    answered(200, &[], Some("0"), GRPC, &[], &["200", "grpc-0"], &["200", "grpc-0"]),
    answered(200, &["16"], Some("16"), GRPC, &["grpc-16"], &[], &[]),
    answered(200, &["0"], Some("16"), GRPC, &["200", "grpc-0"], &["grpc-16"], &[]),
];

#[rustfmt::skip]
const fn answered(
    status: u16,
    head: &'static [&'static str],
    trailers: Option<&'static str>,
    content_type: &'static str,
    statuses: &'static [&'static str],
    of_failures: &'static [&'static str],
    of_calls: &'static [&'static str],
) -> Answered {
    Answered { status, head, trailers, content_type, statuses, of_failures, of_calls }
}

impl Answered {
    fn response(&self, asked: &HeaderMap) -> Response<Body> {
        let mut response = Response::builder().status(self.status);
        match self.content_type {
            "*" => {
                for value in asked.get_all("content-type") {
                    response = response.header("content-type", value);
                }
            }
            own => response = response.header("content-type", own),
        }
        for line in self.head {
            response = response.header("grpc-status", *line);
        }
        let trailers = self.trailers.map(|status| {
            let status = HeaderValue::from_static(status);
            HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), status)])
        });
        let body = Full::new(bytes::Bytes::from_static(b"x"));
        let body = body.with_trailers(std::future::ready(trailers.map(Ok)));
        response.body(Body::new(body)).expect("a valid response")
    }

    /// Whether a setting applies that names these.
    fn has_one(&self, of: &[&str], also: &[&str]) -> bool {
        let names = |status: &&str| of.contains(status) || of.contains(&class(status).as_str());
        self.statuses.iter().chain(also).any(names)
    }

    fn name(&self) -> String {
        let Self {
            status,
            head,
            trailers,
            content_type,
            ..
        } = self;
        format!("{status} {head:?} {trailers:?} {content_type}")
    }
}

fn class(status: &str) -> String {
    format!("{}xx", &status[..1])
}

const SETTINGS: [&[&str]; 7] = [
    &["401"],
    &["200"],
    &["2xx"],
    &["5xx"],
    &["grpc-0"],
    &["grpc-16"],
    &["401", "grpc-16"],
];

/// A handler that answers so, or with a 418 if it is asked for it, behind the layer of this rule.
fn app(limits: &Limits, answer: &'static Answered) -> Router {
    let handler = any(async |request: Request<Body>| {
        if request.headers().contains_key("x-fails") {
            return StatusCode::IM_A_TEAPOT.into_response();
        }
        answer.response(request.headers())
    });
    Router::new().route("/", handler.layer(limits.layer("p")))
}

/// Sends a POST, and reads its answer to the end.
async fn asked(app: &Router, fields: &str) {
    let answer = call(app, post("/", fields)).await;
    answer.into_body().collect().await.expect("a body");
}

fn content_type(of: &str) -> String {
    match of {
        "" => String::new(),
        of => format!("content-type: {of}"),
    }
}

/// Each answer to each kind of request, under each setting: what applies depends on the answer.
#[tokio::test(start_paused = true)]
async fn the_answer_says_what_it_is() {
    for (answer, kind, of) in cells() {
        let cell = format!("{} to {kind:?} under {of:?}", answer.name());
        let fields = content_type(kind);
        let rule = || per_minute("p", 100).with_key(Everyone);

        let refunds = rule().with_refund_on(of.iter().copied()).expect("statuses");
        let limits = Limits::new([refunds]).store(paused());
        asked(&app(&limits, answer), &fields).await;
        let left = limits.peek("p", Key::default()).await.expect("an answer");
        let is_back = left.expect("a rule").remaining() == 100;
        assert_eq!(is_back, answer.has_one(of, &[]), "refund-on: {cell}");

        let keyed = || per_minute("p", 100).with_key(Header::new("x-user"));
        let fields = format!("x-user: ada, {fields}");
        let lockout = |after| Lockout::after(after).hold([HOUR]);
        let on = keyed().with_lockout(lockout(1).on(of.iter().copied()));
        let limits = Limits::new([on.expect("it makes sense")]).store(paused());
        asked(&app(&limits, answer), &fields).await;
        let is_held = limits
            .check("p", Header::new("x-user").key("ada"))
            .await
            .is_err();
        let expected = answer.has_one(of, answer.of_failures);
        assert_eq!(is_held, expected, "on: {cell}");

        let reset_on = lockout(3).on(["418"]).reset_on(of.iter().copied());
        let rule = keyed().with_lockout(reset_on).expect("it makes sense");
        let limits = Limits::new([rule]).store(paused());
        asked(&app(&limits, answer), &format!("x-fails: 1, {fields}")).await;
        advance(SECOND).await;
        asked(&app(&limits, answer), &fields).await;
        // What is admitted in the instant of a success counts nothing.
        advance(SECOND).await;
        let admitted = limits.check("p", Header::new("x-user").key("ada")).await;
        let charge = admitted
            .expect("it is not held")
            .charge
            .expect("it was charged");
        let left = charge.tell_failure().await.expect("an answer");
        let has_reset = left == Some(Attempts::Left(2));
        assert_eq!(
            has_reset,
            answer.has_one(of, &[]),
            "reset-on: {cell}, {left:?}"
        );
    }
}

/// The same for calls to a partner: a 429 or 503 is a refusal in any case.
#[tokio::test(start_paused = true)]
async fn a_partners_answer_says_what_it_is() {
    for (answer, kind, of) in cells() {
        if kind.contains(", ") {
            continue;
        }
        let cell = format!("{} to {kind:?} under {of:?}", answer.name());
        let rule = per_minute("p", 100).with_outgoing().expect("one subject");
        let refunds = rule.clone().with_refund_on(of.iter().copied());
        // Successes hold nothing.
        let holds = rule.with_hold_on(of.iter().copied()).ok();
        let expected = answer.has_one(of, answer.of_calls);
        let holds = holds.map(|it| (it, true));
        for (rule, is_hold) in [(refunds.expect("statuses"), false)]
            .into_iter()
            .chain(holds)
        {
            let limits = Limits::new([rule]).store(paused());
            let client = limits
                .outgoing("p")
                .layer(service_fn(async |request: Request<Body>| {
                    Ok::<_, Infallible>(answer.response(request.headers()))
                }));
            let answered = client.oneshot(post("/", &content_type(kind))).await;
            let body = answered.expect("an answer").into_body();
            body.collect().await.expect("a body");
            assert!(limits.flush(PATIENT).await);
            let checked = limits.check("p", Key::default()).await;
            let is_held = checked.is_err();
            assert_eq!(
                is_held,
                answer.status == 503 || is_hold && expected,
                "hold: {cell}"
            );
            if !is_hold && !is_held {
                let left = checked
                    .expect("allowed")
                    .decision
                    .expect("a decision")
                    .remaining();
                assert_eq!(left == 99, expected, "refund-on: {cell}");
            }
        }
    }
}

/// All answers, to all kinds of requests, under all settings.
fn cells() -> impl Iterator<Item = (&'static Answered, &'static str, &'static [&'static str])> {
    let kinds = ANSWERS
        .iter()
        .flat_map(|answer| CONTENT_TYPES.map(|kind| (answer, kind)));
    kinds.flat_map(|(answer, kind)| SETTINGS.map(|of| (answer, kind, of)))
}

/// A handler that repeats the client's content type with a 200 is a failure under `on = ["200"]`,
/// and gives nothing back where it looks like gRPC: its status may still come.
#[tokio::test(start_paused = true)]
async fn a_handler_that_repeats_the_content_type() {
    static ECHO: Answered = answered(200, &[], None, "*", &[], &["200"], &[]);
    for kind in CONTENT_TYPES {
        let fields = format!("x-user: ada, {}", content_type(kind));
        let lockout = Lockout::after(5).hold([HOUR]).on(["200"]);
        let rule = per_minute("p", 100).with_key(Header::new("x-user"));
        let limits = Limits::new([rule.with_lockout(lockout).expect("it makes sense")]);
        let limits = limits.store(paused());
        let app = app(&limits, &ECHO);
        for _ in 0..5 {
            asked(&app, &fields).await;
        }
        assert!(
            limits
                .check("p", Header::new("x-user").key("ada"))
                .await
                .is_err(),
            "{kind}"
        );
    }
}

/// Only an answer of gRPC without a status in its head is told: not a stranger's request.
#[tokio::test(start_paused = true)]
async fn who_is_warned_of_trailers() {
    static TRAILERS: Answered = answered(200, &[], Some("16"), GRPC, &[], &[], &[]);
    static WEB: Answered = answered(200, &[], None, "application/grpc-web+proto", &[], &[], &[]);
    for (answer, on, expected) in [
        (&ANSWERS[0], &["401"][..], false),
        (&ANSWERS[8], &["401"], false),
        (&TRAILERS, &["401"], true),
        (&TRAILERS, &["401", "grpc-16"], false),
        (&WEB, &["401", "grpc-16"], true),
        (&TRAILERS, &["error"], false),
    ] {
        let rule = per_minute("p", 100).with_key(Header::new("x-user"));
        let lockout = Lockout::after(5).hold([HOUR]).on(on.iter().copied());
        let limits = Limits::new([rule.with_lockout(lockout).expect("it makes sense")]);
        let limits = limits.store(paused());
        asked(
            &app(&limits, answer),
            "x-user: a, content-type: application/grpc",
        )
        .await;
        let warnings = limits.warnings();
        let mut kinds = warnings.iter().map(|it| it.kind);
        let is_warned = kinds.any(|it| it == WarningKind::GrpcStatusInTrailers);
        assert_eq!(
            is_warned,
            expected,
            "{} under {on:?}: {warnings:?}",
            answer.name()
        );
    }
}

/// The recipe for HTTP Basic, over TCP.
#[tokio::test]
async fn guesses_of_all_content_types() {
    let rule = per_minute("git", 100).with_key(tidegate::key::BasicUser);
    let lockout = Lockout::after(5).hold([HOUR]).on(["401"]);
    let limits = Limits::new([rule.with_lockout(lockout).expect("it makes sense")]);
    let handler = any(async || StatusCode::UNAUTHORIZED);
    let server = serve(Router::new().route("/", handler.layer(limits.layer("git")))).await;
    let mut seen = Vec::new();
    for kind in CONTENT_TYPES.iter().cycle().take(60) {
        let kind = content_type(kind);
        let request = post(
            "/",
            &format!("host: a, authorization: Basic YWRhOnJpZ2h0, {kind}"),
        );
        let answer = over_tcp(server, request).await;
        // A denial of gRPC is a 200 with a status 8.
        seen.push(answer.status().as_u16());
    }
    assert_eq!(seen.iter().filter(|it| **it == 401).count(), 5, "{seen:?}");
}

/// A handler that asks a check before it refuses a password, and one that works before it asks.
#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_check_is_the_handlers_answer() {
    let login = per_minute("login", 100).with_key(Header::new("x-user"));
    let lockout = Lockout::after(5).hold([HOUR]).on(["401", "429"]);
    let export = per_minute("export", 10)
        .with_refund_on(["5xx"])
        .expect("statuses");
    let rules = [
        login.with_lockout(lockout).expect("it makes sense"),
        export.with_key(Everyone),
        per_minute("mails", 1),
    ];
    let limits = Limits::new(rules).store(paused());
    let checks = |status: StatusCode| {
        let limits = limits.clone();
        any(
            async move || -> Result<StatusCode, tidegate::layer::Refused> {
                limits.check("mails", "ada").await?;
                Ok(status)
            },
        )
    };
    let app = Router::new()
        .route(
            "/login",
            checks(StatusCode::UNAUTHORIZED).layer(limits.layer("login")),
        )
        .route("/export", checks(OK).layer(limits.layer("export")));
    let guesses = kit::http::statuses(&app, "/login", "x-user: ada", 8).await;
    assert_eq!(guesses, [401, 429, 429, 429, 429, 429, 429, 429]);
    let user = Header::new("x-user").key("ada");
    let refused = limits
        .check("login", user)
        .await
        .expect_err("five have failed");
    assert!(refused.decision().is_some_and(|it| it.is_locked_out()));
    // The work was done, so it is charged.
    for _ in 0..20 {
        ask(&app, "/export", "").await;
    }
    let left = limits
        .peek("export", Key::default())
        .await
        .expect("an answer");
    assert_eq!(left.expect("a rule").remaining(), 0);
}

/// What an error callback makes of the service's error is the service's answer, for its own layer
/// and for those around it, and an error that is among the outcomes as well counts once.
#[tokio::test(start_paused = true)]
async fn the_answer_to_an_error_is_the_services() {
    for on in [&["401"][..], &["error"], &["401", "error"]] {
        for is_around in [false, true] {
            let rule = per_minute("login", 100).with_key(Header::new("x-user"));
            let lockout = Lockout::after(3).hold([HOUR]).on(on.iter().copied());
            let rule = rule.with_lockout(lockout).expect("it makes sense");
            let limits = Limits::new([rule, per_minute("inner", 100)]).store(paused());
            let answers = async |_: Failed| Recovery::from(StatusCode::UNAUTHORIZED);
            let fails = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("no"));
            let login = limits.layer("login");
            let send = async |request| match is_around {
                false => {
                    login
                        .clone()
                        .on_error_fn(answers)
                        .layer(fails)
                        .oneshot(request)
                        .await
                }
                true => {
                    let inner = limits.layer("inner").on_error_fn(answers);
                    login.layer(inner.layer(fails)).oneshot(request).await
                }
            };
            let mut seen = Vec::new();
            for _ in 0..6 {
                let answer = send(request("/", "x-user: ada")).await.expect("an answer");
                assert_eq!(answer.headers()["cache-control"], "no-store");
                seen.push(answer.status().as_u16());
            }
            // An outer layer sees no error, since a layer inside has answered it.
            let expected = match is_around && on == ["error"] {
                true => [401; 6],
                false => [401, 401, 401, 429, 429, 429],
            };
            assert_eq!(seen, expected, "{on:?}, around: {is_around}");
        }
    }
}

/// Over HTTP/1 nobody reads trailers behind a body of a known length, nor an answer to a `HEAD`: with
/// them a failure is never seen. In chunks it is, as tonic's over HTTP/2 is.
#[tokio::test]
async fn trailers_that_nobody_reads() {
    static IN_TRAILERS: Answered = answered(200, &[], Some("16"), GRPC, &[], &[], &[]);
    for (method, is_chunked, expected) in [
        (Method::POST, true, 5),
        (Method::POST, false, 20),
        (Method::HEAD, true, 20),
    ] {
        let rule = per_minute("p", 100).with_key(Header::new("x-user"));
        let lockout = Lockout::after(5).hold([HOUR]).on(["grpc-16"]);
        let limits = Limits::new([rule.with_lockout(lockout).expect("it makes sense")]);
        let handled = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&handled);
        let handler = any(async move |request: Request<Body>| {
            counts.fetch_add(1, Ordering::Relaxed);
            let answer = IN_TRAILERS.response(request.headers());
            match is_chunked {
                // Boxed in a stream of frames a body has no known length.
                true => {
                    answer.map(|it| Body::new(http_body_util::StreamBody::new(it.into_stream())))
                }
                false => answer,
            }
        });
        let server = serve(Router::new().route("/", handler.layer(limits.layer("p")))).await;
        for _ in 0..20 {
            let mut request = request("/", "host: a, x-user: ada, te: trailers");
            *request.method_mut() = method.clone();
            let answer = over_tcp(server, request).await;
            answer.into_body().collect().await.expect("a body");
            assert!(limits.flush(PATIENT).await);
        }
        let handled = handled.load(Ordering::Relaxed);
        assert_eq!(handled, expected, "{method}, in chunks: {is_chunked}");
    }
}

//! Answers that upgrade their connection: the request ends with them, and its permit is free again.

use crate::*;

fn with(policy: impl Into<Policy>) -> Rule {
    Rule::with_policies("socket", [policy.into()]).expect("valid")
}

/// A WebSocket over HTTP/1.1 and HTTP/2, or any other tunnel, also in a dry run: told once, with the
/// line that mends it.
#[tokio::test]
async fn a_permit_that_an_upgrade_gives_back_is_told_once() {
    const SWITCHED: StatusCode = StatusCode::SWITCHING_PROTOCOLS;
    let permits = || with(Policy::concurrent(1));
    let only_counts = || with(Quota::per_minute(100));
    for (rule, method, answer, is_told) in [
        (permits(), Method::GET, SWITCHED, true),
        (permits(), Method::CONNECT, OK, true),
        (permits(), Method::CONNECT, StatusCode::NO_CONTENT, true),
        (permits().into_shadow(), Method::GET, SWITCHED, true),
        (permits(), Method::GET, OK, false),
        (permits(), Method::POST, StatusCode::NO_CONTENT, false),
        (permits(), Method::CONNECT, StatusCode::FORBIDDEN, false),
        (permits(), Method::GET, StatusCode::UPGRADE_REQUIRED, false),
        (only_counts(), Method::GET, SWITCHED, false),
        (only_counts(), Method::CONNECT, OK, false),
    ] {
        let limits = Limits::new([rule]).key(Everyone);
        let handler = any(async move || answer).connect(async move || answer);
        let app = Router::new().route("/", handler.layer(limits.layer("socket")));
        for _ in 0..6 {
            let mut request = get("/");
            *request.method_mut() = method.clone();
            assert_eq!(call(&app, request).await.status(), answer);
            let mut warnings = limits.warnings();
            warnings.retain(|it| it.kind == WarningKind::PermitOfUpgrade);
            let told: Vec<_> = warnings.iter().map(ToString::to_string).collect();
            assert_eq!(told.len(), usize::from(is_told), "{method} {answer}");
            let remedy = "`let admitted = limits.check(\"socket\", key).await?;`";
            assert!(told.iter().all(|it| it.contains(remedy)), "{told:?}");
        }
    }
}

//! Answers that upgrade their connection: the request ends with them, and its permit is free again.

use crate::*;

/// How this is answered by a handler behind a layer, and the warnings then.
async fn warned(limits: &Limits, method: Method, answer: StatusCode) -> Vec<String> {
    let handler = any(move || async move { answer });
    let handler = handler.connect(move || async move { answer });
    let app = Router::new().route("/", handler.layer(limits.layer("socket")));
    let mut request = request("/", "");
    *request.method_mut() = method;
    assert_eq!(call(&app, request).await.status(), answer);
    let warnings = limits.warnings().into_iter();
    let warnings = warnings.filter(|it| it.kind == WarningKind::PermitOfUpgrade);
    warnings.map(|it| it.to_string()).collect()
}

fn limits(policies: impl IntoIterator<Item = Policy>) -> Limits {
    let rule = Rule::with_policies("socket", policies).expect("valid");
    Limits::new([rule]).key(Everyone)
}

/// A WebSocket over HTTP/1.1 and HTTP/2, or any other tunnel: told once, with the line that mends
/// it.
#[tokio::test]
async fn a_permit_that_an_upgrade_gives_back_is_told_once() {
    for (method, status) in [
        (Method::GET, StatusCode::SWITCHING_PROTOCOLS),
        (Method::CONNECT, OK),
        (Method::CONNECT, StatusCode::NO_CONTENT),
    ] {
        let limits = limits([Policy::concurrent(1)]);
        for _ in 0..6 {
            let [warning] = &*warned(&limits, method.clone(), status).await else {
                panic!("{method} {status}: {:?}", limits.warnings());
            };
            let remedy = "`let admitted = limits.check(\"socket\", key).await?;`";
            assert!(warning.contains(remedy), "{warning}");
        }
    }
}

#[tokio::test]
async fn other_answers_are_no_mistake() {
    let only_counts = || limits([Quota::per_minute(100).into()]);
    let holds = || limits([Policy::concurrent(1)]);
    for (limits, method, status) in [
        (holds(), Method::GET, OK),
        (holds(), Method::POST, StatusCode::NO_CONTENT),
        (holds(), Method::CONNECT, StatusCode::FORBIDDEN),
        (holds(), Method::GET, StatusCode::UPGRADE_REQUIRED),
        (only_counts(), Method::GET, StatusCode::SWITCHING_PROTOCOLS),
        (only_counts(), Method::CONNECT, OK),
    ] {
        assert!(warned(&limits, method, status).await.is_empty(), "{status}");
    }
}

/// The mistake in a dry run.
#[tokio::test]
async fn also_of_a_rule_in_shadow() {
    let rule = Rule::with_policies("socket", [Policy::concurrent(1)]).expect("valid");
    let limits = Limits::new([rule.into_shadow()]).key(Everyone);
    let told = warned(&limits, Method::GET, StatusCode::SWITCHING_PROTOCOLS).await;
    assert_eq!(told.len(), 1);
}

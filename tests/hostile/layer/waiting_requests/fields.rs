//! What a denial says while charges of this process are open.

use super::*;

/// A check says the same, in its response and by the callbacks; its decision keeps the law.
#[tokio::test(start_paused = true)]
async fn a_refused_check_says_the_same() {
    use axum::response::IntoResponse;
    let limits = limits([units(1)], paused());
    let held = limits.check("p", "k").await.expect("a unit");
    let refused = limits.check("p", "k").await.expect_err("it is used");
    assert_eq!(refused.retry_after(), Some(MINUTE), "law 3");
    let (head, _) = kit::http::get("/").into_parts();
    for answer in [refused.clone().into_response(), refused.answer(head).await] {
        assert_eq!(answer.status(), DENIED);
        assert_eq!(answer.headers()["retry-after"], "1");
    }
    drop(held);
    let refused = limits.check("p", "k").await.expect_err("it is used");
    assert_eq!(refused.into_response().headers()["retry-after"], "60");
}

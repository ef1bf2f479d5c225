//! Turns that are heard where no runtime is, or where it ends.

use super::*;

#[test]
fn heard_without_a_runtime() {
    let limits = limits(10);
    let partner = limits.outgoing("partner");
    let turn = runtime().block_on(partner.ready("us")).expect("a turn");
    refuse(turn, 60);
    drop(runtime().block_on(partner.ready("us")));
    // A later one, in a runtime, is heard.
    runtime().block_on(async {
        hold(&limits, "us", HOUR).await;
        assert!(is_held(&limits, "us").await);
    });
}

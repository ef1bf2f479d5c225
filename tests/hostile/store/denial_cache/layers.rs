//! The cache under a shadow rule.

use crate::prelude::*;

/// A shadow rule whose denials are told by the cache denies nobody, and counts each of them.
#[tokio::test]
async fn a_shadow_rule_counts_what_is_told() {
    let store = Resilient::new(MemoryStore::new()).build();
    let shadow = per_hour("shadow", 2).into_shadow();
    let enforced = per_hour("enforced", 5).with_shadow(per_hour("enforced", 2));
    let limits = Limits::new(Rules::from_iter([shadow, enforced])).store(store);
    let shadow = app_with_refunds(limits.layer("shadow"));
    for _ in 0..50 {
        assert_eq!(send(&shadow, "/").await.status(), StatusCode::OK);
    }
    let counted = kit::counters(&limits, "shadow");
    assert_eq!(counted.decisions(DecisionOutcome::ShadowDenied), 48);
    assert_eq!(counted.decisions(DecisionOutcome::Allowed), 2);
    let enforced = app_with_refunds(limits.layer("enforced"));
    let mut allowed = 0;
    for _ in 0..50 {
        allowed += u32::from(send(&enforced, "/").await.status().is_success());
    }
    assert_eq!(allowed, 5, "law 1 and 14");
    let counted = kit::counters(&limits, "enforced");
    let denials: Vec<_> = counted.shadow_denials.to_vec();
    assert!(denials[0].1 >= 3, "{denials:?}");
}

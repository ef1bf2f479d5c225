//! The configuration loader on any text: rules that can be used, or an error that says where.

use std::sync::Arc;

use futures_util::FutureExt;
use tidegate::test_util::ManualClock;
use tidegate::{Key, MemoryStore, Quota, Rules, Store, Take};

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Rules::from_toml(text) {
        Ok(rules) => can_be_used(&rules),
        Err(error) => {
            let message = error.to_string();
            match error.line() {
                Some(line) => {
                    let lines = 1 + text.matches('\n').count();
                    assert!((1..=lines).contains(&line), "line {line} of {lines}");
                    assert!(message.starts_with(&format!("line {line}: ")), "{message}");
                }
                // The parser does not say where tables are nested too deeply.
                None => assert_eq!(message, "recursion limit"),
            }
            assert!(!message.contains('\n'), "{message}");
            assert!(message.chars().count() < 900, "{message}");
        }
    }
}

fn can_be_used(rules: &Rules) {
    let store = MemoryStore::new().clock(ManualClock::default());
    for rule in rules.iter() {
        assert!(!rule.path().is_empty());
        assert!((1..=16).contains(&rule.quotas().len()));
        for quota in rule.quotas() {
            assert!(quota.max() <= Quota::MAX_UNITS);
            assert!(!quota.window().is_zero() && quota.window() <= Quota::MAX_WINDOW);
        }
        for policy in rule.policies() {
            let name = policy.name();
            assert!(
                name.bytes()
                    .all(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte))
            );
        }
        assert!(rule.cost() > 0);
        let take = Take::new(Arc::clone(rule), Key::default());
        for _ in 0..2 {
            let answer = store.take(&take).now_or_never();
            let decision = answer
                .expect("memory answers at once")
                .expect("there is room");
            assert_eq!(decision.quotas().len(), rule.quotas().len());
        }
    }
}

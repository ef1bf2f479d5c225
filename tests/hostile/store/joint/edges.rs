//! The edges: windows of a millisecond and of years, as many subjects and quotas as there may be, and
//! one more.

use super::*;

#[tokio::test]
async fn windows_of_a_millisecond_and_of_years() {
    let stores = Stores::start().await;
    let longest = u64::try_from(Quota::MAX_WINDOW.as_millis()).expect("ten years");
    for (story, store, algorithm) in stores.cases() {
        // Redis forgets a window of a millisecond by its own time.
        let is_memory = store.name.contains("memory");
        let own = |name: &str, max, window| Subject::new(name, Everyone).limit(quota(max, window));
        let rule = named(algorithm, [own("short", 2, 1), own("long", 5, longest)]);
        let take = take(&rule, &[("short", "s"), ("long", "")]);
        for round in 0..2 {
            for _ in 0..2 {
                let decision = decide(&store.store, &take).await;
                assert!(decision.is_allowed(), "{story}, {round}: {decision:?}");
            }
            if is_memory {
                let denied = decide(&store.store, &take).await;
                let wait = denied.retry_after().unwrap_or_else(|| panic!("{story}"));
                // The log counts in whole milliseconds.
                assert!(wait <= millis(2), "{story}: {wait:?}");
            }
            store.advance(millis(3));
        }
        store.charge(&take).await;
        store.advance(millis(3));
        let denied = decide(&store.store, &take).await;
        let wait = denied.retry_after().unwrap_or_else(|| panic!("{story}"));
        assert!(wait > 24 * HOUR, "{story}: {wait:?}");
        let by: Vec<_> = denied.denied_by(&["short", "long"]).collect();
        assert_eq!(by, [&"long"], "{story}");
        assert_eq!(left(&store.store, &take).await, [2, 0], "{story}");
    }
}

fn many(subjects: usize, quotas: usize) -> Result<Rule, RuleError> {
    let mut left = quotas;
    let subjects = (0..subjects).map(|at| {
        let own = left / (subjects - at);
        left -= own;
        let subject = Subject::new(&format!("s{at}"), Everyone);
        (0..own as u64).fold(subject, |subject, number| {
            let policy = Policy::new(&format!("q{at}-{number}"), quota(10 + number, 60_000));
            subject.limit(policy.with_cost(1 + number % 4))
        })
    });
    Rule::joint("many", subjects.collect::<Vec<_>>())
}

#[tokio::test]
async fn as_many_as_there_may_be() {
    let stores = Stores::start().await;
    for (subjects, quotas) in [(8, 16), (8, 8), (1, 16), (2, 16)] {
        let rule = many(subjects, quotas).expect("valid");
        for (story, store, algorithm) in stores.cases() {
            let story = format!("{story}, {subjects}, {quotas}");
            let rule = Arc::new(rule.clone().with_algorithm(algorithm));
            let key = Key::from(&*format!("k{quotas}"));
            let keys = rule.subjects().iter().map(|it| (it.name(), key.clone()));
            let take = Take::of_subjects(Arc::clone(&rule), keys).expect("subjects");
            let charge = store.charge(&take).await;
            let policies = rule.policies().iter();
            let after = policies.map(|it| it.quota().max() - it.cost().expect("its own"));
            let after: Vec<_> = after.collect();
            assert_eq!(left(&store.store, &take).await, after, "{story}");
            assert!(give_back(&charge).await > 0, "{story}");
            let full: Vec<_> = rule.quotas().iter().map(Quota::max).collect();
            assert_eq!(left(&store.store, &take).await, full, "{story}");
        }
    }
}

#[test]
fn one_more_is_an_error() {
    for (subjects, quotas) in [(9, 9), (9, 16), (8, 17), (1, 17), (0, 0)] {
        let error = many(subjects, quotas).expect_err("too many");
        assert!(!error.to_string().is_empty());
    }
    let user = || subject("user", 1);
    assert!(Rule::joint("p", [user(), user()]).is_err());
    assert!(Rule::joint("p", [subject("", 1), user()]).is_err());
    assert!(Rule::joint("", [subject("all", 1), user()]).is_err());
    assert!(Rule::joint("p", [Subject::new("all", Everyone), user()]).is_err());
    assert!(Rule::joint("p", [user().limit(costing(5, 0)), subject("b", 1)]).is_err());
    assert!(Rule::joint("p", [user().skip_absent(), subject("b", 1).skip_absent()]).is_err());
    let rule = Arc::new(Rule::joint("p", [user(), subject("b", 1)]).expect("valid"));
    assert!(Take::of_subjects(Arc::clone(&rule), []).is_err());
    assert!(Take::of_subjects(Arc::clone(&rule), [("c", Key::from("x"))]).is_err());
    let leased = (*rule).clone().with_lease(Duration::from_millis(50));
    assert!(leased.is_err(), "{leased:?}");
}

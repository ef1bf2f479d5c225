//! The edges: costs of 0 and above max, a max of 0, windows of a millisecond and of years, as many
//! subjects and quotas as there may be, and one more.

use super::*;

#[tokio::test]
async fn costs_of_nothing_and_of_too_much() {
    for (story, store, algorithm) in Stores::start().await.cases() {
        let user = subject("user", 10).limit(costing(3, 1));
        let subjects = [user, subject("address", 20), subject("everyone", 5)];
        let take = tuple(&named(algorithm, subjects), "u", "a");
        let decided = async |cost| decide(&store.store, &take.clone().with_cost(cost)).await;
        // It pays for a request, and gives that back.
        let free = decided(0).await;
        let receipt = free.receipt().expect("it is allowed");
        assert_eq!(receipt.units(), 0, "{story}");
        assert_eq!(left(&store.store, &take).await, [10, 2, 20, 5], "{story}");
        let refund = store.store.refund(&take.clone().with_cost(0), &receipt);
        assert_eq!(refund.await.expect("an answer"), 0, "{story}");
        // More than one of the maxima, and more than each.
        for cost in [6, 11, 21, u64::MAX] {
            let never = decided(cost).await;
            assert_eq!(never.verdict(), Verdict::Never, "{story}, {cost}");
            assert_eq!(never.retry_after(), None);
        }
        assert_eq!(left(&store.store, &take).await, [10, 3, 20, 5], "{story}");
        for _ in 0..3 {
            store.charge(&take).await;
        }
        assert!(decided(1).await.retry_after().is_some(), "{story}");
        assert_eq!(left(&store.store, &take).await, [7, 0, 17, 2], "{story}");
        // What one count denies for a time, and another one for ever, is denied for ever.
        assert_eq!(decided(6).await.verdict(), Verdict::Never, "{story}");
        // Without the counts that deny.
        let other = super::take(take.rule(), &[("address", "a")]).with_cost(17);
        store.charge(&other).await;
        assert_eq!(left(&store.store, &take).await, [7, 0, 0, 2], "{story}");
    }
}

#[tokio::test]
async fn a_cost_of_its_own_above_max_is_never() {
    for (story, store, algorithm) in Stores::start().await.cases() {
        let all = subject("all", 10).limit(costing(3, 4));
        let rule = named(algorithm, [subject("user", 10), all]);
        let both = take(&rule, &[("user", "u"), ("all", "")]);
        let never = decide(&store.store, &both).await;
        assert_eq!(never.verdict(), Verdict::Never, "{story}");
        assert_eq!(left(&store.store, &both).await, [10, 10, 3], "{story}");
        let look = store.store.peek(&both).await;
        assert!(look.expect("a decision").is_allowed(), "{story}");
        store.charge(&take(&rule, &[("user", "u")])).await;
    }
}

#[tokio::test]
async fn a_max_of_nothing_denies_all() {
    for (story, store, algorithm) in Stores::start().await.cases() {
        let rule = three(algorithm, algorithm.name(), [10, 0, 10]);
        for user in ["u", "v"] {
            let take = tuple(&rule, user, "a");
            let denied = decide(&store.store, &take).await;
            assert_eq!(denied.verdict(), Verdict::Never, "{story}");
            let by: Vec<_> = denied.denied_by(rule.policies()).collect();
            assert_eq!((by.len(), by[0].subject()), (1, Some("address")), "{story}");
            assert_eq!(left(&store.store, &take).await, [10, 0, 10], "{story}");
        }
        // It is not asked where it is absent.
        let both = take(&rule, &[("user", "u"), ("everyone", "")]);
        store.charge(&both).await;
    }
}

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

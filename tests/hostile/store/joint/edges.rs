//! The edges: as many subjects and quotas as there may be, and one more.

use super::*;

fn many(subjects: usize, quotas: usize) -> Result<Rule, RuleError> {
    let mut left = quotas;
    let subjects = (0..subjects).map(|at| {
        let own = left / (subjects - at);
        left -= own;
        let subject = Subject::new(&format!("s{at}"), Everyone);
        (0..own as u64).fold(subject, |subject, number| {
            let policy = Policy::new(
                &format!("q{at}-{number}"),
                quota(10 + number, 60_000 + number),
            );
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
}

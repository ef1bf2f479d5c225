//! Calls of many keys, of which some come too late. Each key is charged what its callers were told.

use super::*;

/// In milliseconds: nothing leaves it, and nothing drains.
const MONTH: u64 = 30 * 86_400_000;
const MAX: u64 = 7;

/// A rule of one quota, and one of two.
fn rules(algorithm: Algorithm) -> [Arc<Rule>; 2] {
    [
        rule(algorithm, "one", &[(MAX, MONTH)]),
        rule(algorithm, "two", &[(MAX, MONTH), (9, 2 * MONTH)]),
    ]
}

/// All of them, by all algorithms, and what to call each.
fn all_rules() -> impl Iterator<Item = (String, Algorithm, Arc<Rule>)> {
    Algorithm::ALL.into_iter().flat_map(|algorithm| {
        let named = |rule: Arc<Rule>| (format!("{algorithm:?}, {}", rule.path()), algorithm, rule);
        rules(algorithm).map(named)
    })
}

/// So many takes of the keys from 0 to below this.
fn takes(rule: &Arc<Rule>, number: usize, keys: usize) -> Vec<Take> {
    let takes = (0..number).map(|at| take(rule, &(at % keys).to_string()));
    takes.collect()
}

/// Takes of hasty and of patient callers in the same calls, while the server stands still: the
/// hasty ones are late, and charge nothing.
#[tokio::test]
async fn late_takes_among_others() {
    let (server, patient) = near().await;
    for (case, _algorithm, rule) in all_rules() {
        // Known and new keys, and several takes of a key.
        for key in 0..20 {
            let take = take(&rule, &key.to_string());
            assert!(is_allowed(&patient.take(&take).await));
        }
        let hasty = patient.clone().timeout(millis(30));
        let takes = takes(&rule, 160, 40);
        run(&server, "CLIENT PAUSE 200");
        let paused = Instant::now();
        let is_hasty = |at: usize| at.is_multiple_of(3);
        let ask = |(at, take): (usize, &Take)| match is_hasty(at) {
            true => hasty.take(take),
            false => patient.take(take),
        };
        let asked: Vec<_> = takes.iter().enumerate().map(ask).collect();
        // All that was late is late by the server's clock.
        let was_asked_in_time = paused.elapsed() < millis(100);
        let answers = join_all(asked).await;
        let mut charged: Vec<_> = (0..40).map(|key| u64::from(key < 20)).collect();
        for (at, answer) in answers.iter().enumerate() {
            charged[at % 40] += u64::from(is_allowed(answer));
            if is_hasty(at) && was_asked_in_time {
                let expected = Some(StoreErrorKind::Timeout);
                assert_eq!(kind(answer), expected, "{case}: {answer:?}");
            }
        }
        for (key, charged) in charged.into_iter().enumerate() {
            let take = take(&rule, &key.to_string());
            let left = remaining(&patient, &take).await;
            let story = format!("{case}, {key}");
            let is_right = !was_asked_in_time || MAX - left == charged;
            assert!(is_right, "{story}: {left}");
        }
    }
}

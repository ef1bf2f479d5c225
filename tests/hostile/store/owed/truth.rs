//! Retry-after is true after a settlement, at the ends of numbers, too.

use super::*;

const MICRO: Duration = Duration::from_micros(1);
const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn ask(clocked: &Clocked, take: &Take) -> Decision {
    let answer = clocked.store.take(take).await;
    let now = clocked.clock.now();
    answer.unwrap_or_else(|error| panic!("{} at {now}: {error}: {take:?}", clocked.name))
}

/// If the take is denied, it is denied until the microsecond before its retry-after, and allowed
/// then. Returns whether it was denied.
async fn retry_after_is_true(clocked: &Clocked, take: &Take, case: &str) -> bool {
    let first = ask(clocked, take).await;
    let Some(after) = first.retry_after() else {
        assert!(first.is_allowed(), "{case}: {first:?}");
        return false;
    };
    assert!(after >= MICRO, "{case}: {first:?}");
    clocked.advance(after / 2);
    let halfway = ask(clocked, take).await;
    if after > MICRO {
        let rest = after - after / 2;
        let rest = Duration::from_micros(rest.as_nanos().div_ceil(1_000) as u64);
        assert_eq!(halfway.retry_after(), Some(rest), "{case}: halfway");
        clocked.advance(rest - MICRO);
        let early = ask(clocked, take).await;
        assert_eq!(early.retry_after(), Some(MICRO), "{case}: a step earlier");
    }
    clocked.advance(MICRO);
    let last = ask(clocked, take).await;
    assert!(last.is_allowed(), "{case}: after {after:?}: {last:?}");
    true
}

/// Numbers at their ends: what is charged and what is forgiven is what was used beyond, no quota
/// owes more than it may, retry-after is true for years, and memory equals Redis.
#[tokio::test]
async fn numbers_at_their_ends() {
    const MOST: u64 = Quota::MAX_UNITS;
    let stores = Stores::start().await;
    let mut charged = Vec::new();
    let quotas = [1, 5, MOST].map(|max| [millis(1), SECOND, 30 * DAY].map(|it| (max, it)));
    let debts = [0, 1, MOST, u64::MAX].map(|owe| [2, MOST + 7, u64::MAX].map(|it| (owe, it)));
    let (quotas, debts) = (quotas.concat(), debts.concat());
    let with_debts = |quota| debts.iter().map(move |debt| (quota, *debt));
    let all = quotas.into_iter().flat_map(with_debts);
    let all: Vec<_> = all.collect();
    for clocked in &stores.all {
        let (mut of_store, start) = (Vec::new(), clocked.clock.now());
        for algorithm in Algorithm::ALL {
            for &((max, window), (owe, used)) in &all {
                let case = format!("{algorithm:?} {max} in {window:?}, {owe}, {used}");
                let rule = rule(algorithm, "ends", &[(max, window)], owe);
                let one = take(&rule, &case, 1);
                let case = format!("{} {case}", clocked.name);
                clocked.clock.set(start);
                let charge = clocked.charge(&one).await;
                let settled = settle(&charge, used).await;
                let most = (max - 1 + owe.min(MOST)).min(used - 1);
                let sum = settled.charged.checked_add(settled.forgiven);
                assert_eq!(sum, Some(used - 1), "{case}");
                match algorithm {
                    Algorithm::Gcra => assert!(settled.charged <= most, "{case}"),
                    _ => assert_eq!(settled.charged, most, "{case}"),
                }
                of_store.push(settled.charged);
                let again = settle(&charge, u64::MAX).await;
                assert_eq!((again.charged, again.forgiven), (0, 0), "{case}");
                let is_denied = retry_after_is_true(clocked, &one, &case).await;
                let is_full = settled.charged + 1 >= max;
                assert!(is_denied || !is_full, "{case}");
            }
        }
        charged.push(of_store);
    }
    assert!(charged.iter().all(|it| *it == charged[0]), "law 8");
}

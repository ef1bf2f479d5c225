//! Law 4: whatever is mixed on a key, it has an expiry, which covers what counts and not much more.

use kit::oracle::charged;

use super::*;

const WINDOWS: [u64; 9] = [
    1,
    3,
    250,
    1_000,
    17_000,
    60_000,
    3_600_000,
    86_400_000,
    315_576_000_000,
];

/// The longest expiry of a key of which a charge counts for so long, in milliseconds: it is set
/// once in each 16th of that time, or of 16 seconds, and lasts two of these more.
fn longest_expiry(life: u64) -> i64 {
    let expiry = life + 2 * (life / 16).max(1_049) + 2;
    i64::try_from(expiry).expect("some years")
}

struct Key {
    take: Take,
    /// The longest time that anything charged counts, in milliseconds.
    life: u64,
    receipts: Vec<Receipt>,
}

async fn histories(algorithm: Algorithm) {
    let mut random = Random::new(41);
    let (server, store) = near().await;
    for history in 0..30 {
        let clock = clock_at(START);
        let store = store.clone().clock(clock.clone());
        let began = Instant::now();
        let path = format!("h{history}");
        let mut keys: HashMap<u64, Key> = HashMap::new();
        for step in 0..40 {
            let number = if random.is(70) { 1 } else { 3 };
            let any = |_| {
                let max = [1, 2, 5, 50, Quota::MAX_UNITS][random.below(5) as usize];
                (max, WINDOWS[random.below(9) as usize])
            };
            let mut of: Vec<_> = (0..number).map(any).collect();
            of.sort_by_key(|(_, window)| *window);
            of.dedup_by_key(|(_, window)| *window);
            let debts = [0, 3, 1_000, 10_000_000, u64::MAX];
            let rule = owned(algorithm, &path, &of);
            let rule = rule.with_owe_at_most(debts[random.below(5) as usize]);
            let life = of.iter().map(|(_, window)| *window).max().expect("a quota");
            let number = random.below(3);
            let asked = take(&Arc::new(rule), &number.to_string());
            let asked = asked.with_cost([0, 1, 1, 1, 2, 60][random.below(6) as usize]);
            let key = keys.entry(number).or_insert_with(|| Key {
                take: asked.clone(),
                life: 0,
                receipts: Vec::new(),
            });
            if random.is(15)
                && let Some(receipt) = key.receipts.pop()
            {
                refund(&store, &key.take, &receipt).await;
            }
            let mut decision = decide(&store, &asked).await;
            let story = format!("{algorithm:?}, {history}, step {step}: {of:?}, {decision:?}");
            let receipt = charged(&decision);
            if let Some(receipt) = receipt.as_ref().filter(|_| random.is(15)) {
                let used = asked
                    .clone()
                    .with_cost([1, 70, u64::MAX][random.below(3) as usize]);
                store.owe(&used, receipt).await.expect("an answer");
                decision = store.peek(&asked).await.expect("a decision");
            }
            let [own, back] = names(&asked);
            let (left, of_back) = (server.life(&own), server.life(&back));
            // Nothing that counts is there, unless the test took so long that it went.
            let has_expired = began.elapsed() > Duration::from_millis(900);
            if let Some(receipt) = receipt {
                // What is owed may count for longer than a window.
                let reset = decision.reset_after().as_millis() as u64;
                key.life = key.life.max(life).max(reset);
                key.receipts.push(receipt);
                let lives = left + began.elapsed().as_millis() as i64;
                assert!(
                    lives >= life.max(reset) as i64,
                    "{story}: it lives for {left} ms"
                );
            }
            let longest = longest_expiry(key.life);
            let is_right = |left: i64, may_be_absent: bool| {
                (0..=longest).contains(&left) || left == -2 && may_be_absent
            };
            let may_be_absent = key.life == 0 || has_expired;
            let are_right = is_right(left, may_be_absent) && is_right(of_back, true);
            assert!(are_right, "{story}: {left}, {of_back} of {longest}");
            let pauses = [0, 1, 999, 1_100_000, 20_000_000, 4_000_000_000];
            clock.set(clock.now() + pauses[random.below(6) as usize]);
            if random.is(3) {
                clock.set(clock.now() - 1_500_000);
            }
            if random.is(3) {
                reset(&store, &asked).await;
            }
        }
    }
}

#[tokio::test]
async fn under_each_algorithm() {
    join_all(Algorithm::ALL.map(histories)).await;
}

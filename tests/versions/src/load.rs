//! Asks for a time, as services do: takes under each rule, a limiter and a lock in Redisson's layout.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, try_join3};
use tidegate::limiter::{Rate, RateLimiter};
use tidegate::lock::Lock;
use tidegate::{Redis, RedisStore, Resilient, Rules, Store};
use tokio::time::{Instant, sleep};

use crate::player::take;
use crate::{PATIENT, Result};

const TASKS: usize = 8;
const LEASE: Duration = Duration::from_secs(1);
const RATE: (u64, Duration) = (20, Duration::from_millis(500));

/// By the machine's clock, which is that of its Redis, too.
fn now() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("after 1970").as_micros()
}

type Lines = RefCell<Vec<String>>;

/// Returns lines of what was granted, with the microseconds from when until when: `grant PATH PLAN
/// KEYS COST` and not given back, `acquired UNITS` by the limiter, `locked TOKEN`, `lost` of a lock;
/// and `error TEXT`.
pub(crate) async fn load(redis: &Redis, rules: &str, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let rules = Rules::from_toml(&rules.replace('\t', "\n"))?;
    let store = RedisStore::of(redis).timeout(PATIENT);
    let store = Resilient::new(store).timeout(PATIENT).build();
    let lines = Lines::default();
    let takes = join_all((0..TASKS).map(|_| takes(&store, &rules, end, &lines)));
    let takes = async { takes.await.into_iter().collect::<Result<Vec<_>>>() };
    let all = try_join3(
        takes,
        acquires(redis, end, &lines),
        locks(redis, end, &lines),
    );
    if let Err(error) = all.await {
        lines.borrow_mut().push(format!("error {error}"));
    }
    Ok(lines.into_inner().join("\n") + "\n")
}

/// A third of what is granted is given back.
async fn takes(store: &Arc<dyn Store>, rules: &Rules, end: Instant, lines: &Lines) -> Result<()> {
    let all: Vec<_> = rules.iter().collect();
    while Instant::now() < end {
        sleep(Duration::from_millis(fastrand::u64(..3))).await;
        let rule = all[fastrand::usize(..all.len())];
        let (path, key) = (rule.path(), format!("k{}", fastrand::u8(..3)));
        let keys = match rule.subjects().is_empty() {
            true => key,
            false => format!("user={key},everyone="),
        };
        let plan = ["-", "pro"][usize::from(fastrand::bool() && rule.plans().count() > 0)];
        let take = take(rules, path, plan, &keys)?.with_cost(fastrand::u64(1..4));
        let decision = store.take(&take).await?;
        let Some(receipt) = decision.receipt().filter(|_| decision.is_allowed()) else {
            continue;
        };
        // What is given back may be all that began a fixed window, and of several counts each gives back
        // what has not begun to drain.
        let mut units = take.cost();
        if !path.ends_with("fixed-window") && path != "joint-gcra" && fastrand::u8(..3) == 0 {
            units -= store.refund(&take, &receipt).await?;
        }
        if units > 0 {
            // By the server's clock.
            let at = receipt.stamp();
            let line = format!("grant {path} {plan} {keys} {units} {at} {at}");
            lines.borrow_mut().push(line);
        }
    }
    Ok(())
}

async fn acquires(redis: &Redis, end: Instant, lines: &Lines) -> Result<()> {
    let limiter = RateLimiter::new(redis, "versions:limiter");
    limiter.try_set_rate(Rate::overall(RATE.0, RATE.1)?).await?;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let (units, asked) = (fastrand::u64(1..4), now());
        if limiter.try_acquire_for(units, left).await? {
            lines
                .borrow_mut()
                .push(format!("acquired {units} {asked} {}", now()));
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// It is asked for again when a waiter who is woken has it, and before the next release. One is held
/// for longer than a lease, which is renewed meanwhile.
async fn locks(redis: &Redis, end: Instant, lines: &Lines) -> Result<()> {
    let lock = Lock::new(redis, "versions:lock").lease(LEASE);
    let (mut number, long) = (0, fastrand::u64(2..8));
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let taken = lock.try_lock_for(left).await;
        let from = now();
        let guard = match taken {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            // This process was starved.
            Err(error) if error.to_string().contains("the lease ran out") => {
                lines.borrow_mut().push(format!("lost {from} {from}"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        number += 1;
        let is_long = number == long;
        sleep(if is_long { LEASE * 6 / 5 } else { LEASE / 10 }).await;
        let until = now();
        lines.borrow_mut().push(match guard.is_held() {
            true => format!("locked {} {from} {until}", guard.fencing_token()),
            false => format!("lost {from} {until}"),
        });
        guard.release().await.ok();
        sleep(LEASE / 12).await;
    }
    Ok(())
}

//! Calls of a store, as lines of words. The checker plays the same lines in memory, so this file is
//! a part of it, too.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::decision::Receipt;
use tidegate::test_util::ManualClock;
use tidegate::{Decision, Key, Rules, Store, Take};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Plays on a store whose clock each call sets. It keeps what was charged by the number that the
/// call gave it.
pub struct Player(
    Arc<dyn Store>,
    ManualClock,
    Rules,
    HashMap<u64, (Take, Receipt)>,
);

impl Player {
    pub fn new(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        Self(store, clock, Rules::default(), HashMap::new())
    }

    /// One call, and its answer. `rules TOML` has tabs for the ends of lines; others begin with the
    /// time. `take NUMBER PATH PLAN KEYS COST,COST..` asks at the same time, `peek PATH PLAN KEYS`,
    /// `reset` and `hold .. MILLIS` are about a key, `refund NUMBER UNITS`, `owe` about a charge,
    /// `release NUMBER` and `renew` about its permits.
    ///
    /// # Errors
    ///
    /// What the store says, or that the line makes no sense.
    pub async fn play(&mut self, line: &str) -> Result<String> {
        let Self(store, clock, rules, charges) = self;
        if let Some(text) = line.strip_prefix("rules ") {
            *rules = Rules::from_toml(&text.replace('\t', "\n"))?;
            return Ok("read".into());
        }
        let (now, line) = line.split_once(' ').ok_or("no time")?;
        clock.set(now.parse()?);
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["take", number, path, plan, keys, costs] => {
                let (take, number) = (take(rules, path, plan, keys)?, number.parse::<u64>()?);
                let costs = costs.split(',').map(|it| it.parse().expect("a number"));
                let takes: Vec<_> = costs.map(|it| take.clone().with_cost(it)).collect();
                let answers = join_all(takes.iter().map(|take| store.take(take))).await;
                let mut told = Vec::new();
                for (at, (take, answer)) in (number..).zip(takes.into_iter().zip(answers)) {
                    let decision = answer?;
                    told.push(text(&decision));
                    if let Some(receipt) = decision.receipt().filter(|_| decision.is_allowed()) {
                        charges.insert(at, (take, receipt));
                    }
                }
                told.join(" | ")
            }
            ["refund" | "owe", number, units] => {
                let (take, receipt) = &charges[&number.parse()?];
                let part = take.clone().with_cost(units.parse()?);
                match words[0] {
                    "refund" => store.refund(&part, receipt).await?.to_string(),
                    _ => store.owe(&part, receipt).await?.to_string(),
                }
            }
            ["release" | "renew", number] => {
                let (take, receipt) = &charges[&number.parse()?];
                let counts = take.counts().iter().enumerate();
                let permits = counts.filter(|(_, it)| it.name("").ends_with("~permits"));
                for (at, _) in permits {
                    let (count, holder) = (take.only(at), &receipt.counts()[at]);
                    match words[0] {
                        // One whose lease has ended may be there still.
                        "release" => drop(store.refund(&count, holder).await?),
                        _ => store.renew(&count, holder).await?,
                    }
                }
                String::new()
            }
            [word, path, plan, keys, ref rest @ ..] => {
                let take = take(rules, path, plan, keys)?;
                match (word, rest) {
                    ("peek", []) => states(&store.peek(&take).await?),
                    // It may find what counts no longer: so its answer says nothing.
                    ("reset", []) => store.reset(&take).await.map(|_| String::new())?,
                    ("hold", [millis]) => {
                        let time = Duration::from_millis(millis.parse()?);
                        format!("{:?}", store.hold(&take, time).await?)
                    }
                    _ => return Err("no such call".into()),
                }
            }
            _ => return Err("no such call".into()),
        })
    }
}

/// A take; `KEYS` is a key, or `user=alice,everyone=` for a rule of several subjects.
pub fn take(rules: &Rules, path: &str, plan: &str, keys: &str) -> Result<Take> {
    let rule = rules.get(path).ok_or("no such rule")?;
    let rule = rule.of_plan(plan).unwrap_or_else(|| Arc::clone(rule));
    if rule.subjects().is_empty() {
        return Ok(Take::new(rule, Key::from(keys)));
    }
    let subjects = keys.split(',').filter_map(|it| it.split_once('='));
    let subjects = subjects.map(|(name, key)| match key {
        "" => (name, Key::default()),
        key => (name, Key::from(key)),
    });
    Ok(Take::of_subjects(rule, subjects)?)
}

fn text(decision: &Decision) -> String {
    let verdict = match decision.is_allowed() {
        true => "allowed",
        false if decision.is_on_hold() => "on-hold",
        false if decision.is_busy() => "busy",
        false => "denied",
    };
    format!(
        "{verdict} {:?}: {}",
        decision.retry_after(),
        states(decision)
    )
}

fn states(decision: &Decision) -> String {
    let states = decision.quotas().iter();
    let told: Vec<_> = states
        .map(|it| format!("{} {:?}", it.remaining(), it.reset_after()))
        .collect();
    told.join(", ")
}

//! What the field `RateLimit` says is so: the units `r` are there, whenever a client asks for them
//! within `t` seconds, and `t` is neither 0 nor too short, nor longer than need be.
//!
//! The fields are those of a layer whose store answers as the history does. Each claim is put to
//! the test on a clone of the count.

use kit::steps::{
    Broken, History, Seen, Theme, Way, any_start, check_each, history, number_of_histories,
};
use kit::{ensure, oracle};
use proptest::prelude::{any, *};
use tidegate::store::{Ask, Change};

use crate::reference::{Act, Outcome, play, story};
use crate::*;

kit::for_each_algorithm!(the_effective_window_is_so);

const SECOND: u64 = 1_000_000;

/// A client that goes on with a copy of the count.
#[derive(Clone)]
struct Client {
    way: Way,
    quotas: Vec<Quota>,
    now: u64,
    count: Count,
}

impl Client {
    fn take(&mut self, cost: u64) -> Decision {
        self.count.take(self.way, self.now, &self.quotas, cost)
    }

    /// What a clone answers at another instant.
    fn would(&self, now: u64, cost: u64) -> Decision {
        self.count.clone().take(self.way, now, &self.quotas, cost)
    }

    fn limits(&self) -> impl Iterator<Item = u64> {
        self.quotas
            .iter()
            .map(|quota| oracle::limit(self.way, quota))
    }
}

fn the_effective_window_is_so(algorithm: Algorithm) {
    let histories = histories(algorithm);
    let seen = check_each(
        number_of_histories(800),
        &histories,
        |(history, parts), seen| follow(history, parts, seen),
    );
    seen.expect(400, "several seconds");
    seen.expect(80, "untouched");
    seen.expect(200, "denied");
    seen.expect(20, "left out");
    seen.expect(200, "nothing remains");
    seen.expect(400, "a second less");
}

/// Plays it once more, and looks at the fields of each decision.
fn follow(history: &History, parts: &[u16], seen: &Seen) -> Result<(), Broken> {
    let Outcome { played, result } = play(history, &Seen::default());
    result?;
    let spec = &history.setup.specs[0];
    let quotas = spec.own.iter().filter_map(|limit| limit.quota);
    let mut client = Client {
        way: spec.way,
        quotas: quotas.collect(),
        now: history.setup.start,
        count: Count::default(),
    };
    let shown = Shown::new(&client);
    let mut receipts = Vec::new();
    for (at, step) in played.iter().enumerate() {
        client.now = step.now;
        match &step.act {
            Act::Refund(charge, units) => {
                let quotas = client.quotas.clone();
                client
                    .count
                    .refund(step.now, &quotas, &receipts[*charge], *units);
            }
            Act::Take(costs) => {
                let decision = client.take(costs[0]);
                receipts.extend(charged(&decision));
                let response = shown.of(&decision);
                let told = Told {
                    player: &client,
                    decision: &decision,
                    response: &response,
                };
                told.holds(parts, seen).map_err(|broken| {
                    let told = story(&history.setup, &played[..=at]);
                    format!("{broken}: {response:?}{told}")
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The windows are long enough for seconds to matter.
fn histories(algorithm: Algorithm) -> impl Strategy<Value = (History, Vec<u16>)> {
    let parts = prop::collection::vec(any::<u16>(), 4);
    let plain = history(algorithm, Theme::Plain, any_start());
    (plain, parts).prop_map(|(mut history, parts)| {
        for limit in &mut history.setup.specs[0].own {
            limit.quota = limit.quota.as_ref().map(longer);
        }
        (history, parts)
    })
}

fn longer(quota: &Quota) -> Quota {
    let window = (quota.window() * 1_000).min(Quota::MAX_WINDOW);
    let longer = Quota::new(window, quota.max()).expect("within bounds");
    longer.with_burst(quota.burst()).unwrap_or(longer)
}

/// Answers with the decision that it was told.
#[derive(Debug, Default, Clone)]
struct Answer(Arc<Mutex<Option<Decision>>>);

impl Store for Answer {
    fn take(&self, _: &Ask) -> StoreFuture<Decision> {
        let decision = self.0.lock().expect("no panic").take();
        StoreFuture::ready(Ok(decision.expect("one for each request")))
    }

    fn change(&self, _: &Ask, _: &Change) -> StoreFuture<u64> {
        StoreFuture::ready(Ok(0))
    }

    fn name(&self) -> String {
        "answer".to_owned()
    }
}

/// What clients are shown of a decision.
struct Shown {
    answer: Answer,
    layer: RateLimitLayer,
}

impl Shown {
    fn new(client: &Client) -> Self {
        let quotas = client.quotas.iter().enumerate();
        let policies = quotas.map(|(index, quota)| Policy::new(&index.to_string(), *quota));
        let rule = Rule::with_policies("p", policies).expect("valid");
        let answer = Answer::default();
        let layer = RateLimitLayer::from_rule(rule.with_algorithm(client.way));
        let layer = layer.store(answer.clone());
        Self { answer, layer }
    }

    fn of(&self, decision: &Decision) -> HeaderMap {
        *self.answer.0.lock().expect("no panic") = Some(decision.clone());
        let handler = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()));
        let response = self
            .layer
            .layer(service_fn(handler))
            .call(Request::default());
        let response = response.now_or_never().expect("ready").expect("infallible");
        response.headers().clone()
    }
}

/// An item of the field.
struct Item {
    index: usize,
    available: u64,
    window: Option<u64>,
}

fn items(response: &HeaderMap) -> Vec<Item> {
    let field = response["ratelimit"].to_str().expect("text");
    let item = |item: &str| {
        let mut parts = item.split(';');
        let name = parts.next().expect("a name").trim_matches('"');
        let numbers = parts.map(|part| part.split_once('=').expect("a parameter"));
        let numbers: Vec<_> = numbers.collect();
        let number = |name| {
            let found = numbers.iter().find(|(other, _)| *other == name);
            found.map(|(_, number)| number.parse().expect("a number"))
        };
        Item {
            index: name.parse().expect("an index"),
            available: number("r").expect("required"),
            window: number("t"),
        }
    };
    field.split(',').map(item).collect()
}

/// What a client was told, and who knows better.
struct Told<'a> {
    player: &'a Client,
    decision: &'a Decision,
    response: &'a HeaderMap,
}

impl Told<'_> {
    fn holds(&self, parts: &[u16], seen: &Seen) -> Result<(), Broken> {
        let items = items(self.response);
        ensure!(
            items.len() == self.decision.quotas().len(),
            "not all quotas"
        );
        let retry_after = self.response.get("retry-after");
        let retry_after =
            retry_after.map(|it| it.to_str().expect("text").parse().expect("a number"));
        for item in &items {
            let state = self.decision.quotas()[item.index];
            ensure!(item.available == state.remaining(), "other units");
            let more = self.player.would(self.player.now, item.available + 1);
            ensure!(!more.is_allowed(), "more than {} at once", item.available);
            let Some(window) = item.window else {
                let is_late = retry_after.is_some() && !state.is_exceeded();
                ensure!(is_late, "no effective window");
                seen.note_if(true, "left out");
                continue;
            };
            ensure!(window > 0, "no time");
            self.are_there(window, parts)?;
            if let Some(retry_after) = retry_after {
                // It says no more than timers of clients bear.
                let is_cut = retry_after == 2_147_483;
                ensure!(window <= retry_after || is_cut, "later than Retry-After");
                seen.note_if(true, "denied");
                continue;
            }
            ensure!(
                self.is_long_enough(item, window * SECOND),
                "{window} s are too short"
            );
            if window > 1 {
                // A bucket may say a microsecond more: units need not come at whole ones.
                let is_gcra = self.player.way.algorithm == Algorithm::Gcra;
                let shorter = (window - 1) * SECOND - u64::from(is_gcra);
                ensure!(
                    !self.is_long_enough(item, shorter),
                    "{window} s are too long"
                );
                seen.note_if(true, "a second less");
            }
            seen.note_if(window > 1, "several seconds");
            seen.note_if(state.reset_after().is_zero(), "untouched");
            seen.note_if(item.available == 0, "nothing remains");
        }
        self.there_are_more(&items)
    }

    /// The units that are left can be had within the window, however they are asked for.
    fn are_there(&self, window: u64, parts: &[u16]) -> Result<(), Broken> {
        let mut client = self.player.clone();
        let mut left = self.decision.remaining();
        let end = client.now + window * SECOND;
        for (at, part) in parts.iter().enumerate() {
            let pause = (end - client.now) / 8 * u64::from(part % 9);
            client.now += pause;
            let is_last = at + 1 == parts.len();
            let units = match is_last {
                true => left,
                false => left / 8 * u64::from(part / 9 % 9),
            };
            let decision = client.take(units);
            ensure!(
                units == 0 || decision.is_allowed(),
                "{units} of {left} are not there: {decision:?}"
            );
            left -= units;
        }
        Ok(())
    }

    /// Whether a client that spreads the units over so many microseconds is no faster than the
    /// quota, and whether there are more after them: of a bucket one, and else all.
    fn is_long_enough(&self, item: &Item, time: u64) -> bool {
        let quota = &self.player.quotas[item.index];
        let limit = oracle::limit(self.player.way, quota);
        let used = u128::from(item.available) * u128::from(oracle::window(quota));
        let is_no_faster = used <= u128::from(time) * u128::from(quota.max());
        if limit == 0 {
            return time >= oracle::window(quota);
        }
        let then = self.player.would(self.player.now + time, 0);
        let there = then.quotas()[item.index].remaining();
        let is_back = match self.player.way.algorithm {
            Algorithm::Gcra => there > item.available.min(limit - 1),
            _ => there == limit,
        };
        is_no_faster && is_back
    }

    /// A client that has used what it was told of gets more when the window is over.
    fn there_are_more(&self, items: &[Item]) -> Result<(), Broken> {
        let available = self.decision.remaining();
        let tight = items.iter().filter(|item| item.available == available);
        let window = tight.map(|item| item.window).max().flatten();
        let is_closed = self.player.limits().any(|limit| limit == 0);
        let Some(window) = window.filter(|_| !is_closed) else {
            return Ok(());
        };
        let mut client = self.player.clone();
        ensure!(
            client.take(available).is_allowed(),
            "{available} are not there"
        );
        client.now += window * SECOND + self.sub_window();
        let more = client.take(1);
        ensure!(more.is_allowed(), "no more after {window} s: {more:?}");
        Ok(())
    }

    /// How much later units leave that share a sub-window with those that are used.
    fn sub_window(&self) -> u64 {
        let windows = self.player.quotas.iter().map(oracle::window);
        match self.player.way.algorithm {
            Algorithm::SlidingWindow => {
                windows.max().expect("a quota") / u64::from(self.player.way.sub_windows)
            }
            _ => 0,
        }
    }
}

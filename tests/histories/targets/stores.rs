//! Anything behind the trait `Store`.

use tidegate::store::Ask;

use super::*;
use crate::joint::is_of_permits;

pub(crate) struct StoreTarget {
    name: String,
    store: Arc<dyn Store>,
    clock: ManualClock,
    /// Its own clock is monotonic: it ends once the clock went back.
    is_monotonic: bool,
    is_over: bool,
    /// Of every charge, with the number that the steps give it.
    receipts: Vec<Receipt>,
    /// A server, and another process on it: they ask in turn.
    server: Option<(redis::Client, Arc<dyn Store>)>,
    asked: usize,
}

impl StoreTarget {
    pub(crate) fn new(name: String, make: impl FnOnce(ManualClock) -> Arc<dyn Store>) -> Self {
        let clock = ManualClock::default();
        Self {
            store: make(clock.clone()),
            clock,
            is_monotonic: name != "Store(Redis)",
            is_over: false,
            name,
            receipts: Vec::new(),
            server: None,
            asked: 0,
        }
    }

    /// The same from two processes.
    pub(crate) fn beside(
        self,
        server: redis::Client,
        other: impl FnOnce(ManualClock) -> Arc<dyn Store>,
    ) -> Self {
        let server = Some((server, other(self.clock.clone())));
        Self { server, ..self }
    }

    async fn owe(&self, take: &Take, at_most: Option<u64>) -> u64 {
        let take = match at_most {
            Some(at_most) => {
                let rule = Rule::clone(take.rule()).with_owe_at_most(at_most);
                Take::new(Arc::new(rule), take.key().clone()).with_cost(take.cost())
            }
            None => take.clone(),
        };
        let any = Receipt::new(0, 0, 1);
        self.store.owe(&take, &any).await.expect("an answer")
    }

    /// The permit of a charge.
    fn permit(&self, take: &Take, charge: usize) -> (Ask, &Receipt) {
        let last = take.only(take.counts().len() - 1);
        assert!(is_of_permits(&last), "{last:?}");
        let of_counts = self.receipts[charge].counts();
        (last, of_counts.last().expect("one for each count"))
    }
}

impl Target for StoreTarget {
    fn name(&self) -> &str {
        &self.name
    }

    async fn play(&mut self, step: &Played) -> Option<Vec<Fact>> {
        let has_gone_back = step.now < self.clock.now() && self.clock.now() > 1_000_000_000;
        self.is_over |= self.is_monotonic && has_gone_back;
        if self.is_over {
            return None;
        }
        self.clock.set(step.now);
        self.asked += 1;
        let other = self
            .server
            .as_ref()
            .filter(|_| self.asked.is_multiple_of(2));
        let store = other.map_or(&self.store, |(_, other)| other);
        let take = &step.take;
        Some(match &step.act {
            Act::Take(costs) => {
                let takes = costs.iter().map(|cost| take.clone().with_cost(*cost));
                let takes: Vec<_> = takes.collect();
                let decisions = join_all(takes.iter().map(|take| store.take(take))).await;
                let mut facts = Vec::new();
                for decision in decisions {
                    let decision = decision.expect("a decision");
                    self.receipts.extend(charged(&decision));
                    facts.push(fact(&decision, charged(&decision), step.spec.is_joint()));
                }
                facts
            }
            Act::Refund(charge, units) => {
                let take = take.clone().with_cost(*units);
                let back = store.refund(&take, &self.receipts[*charge]).await;
                vec![Fact::Units(back.expect("an answer"))]
            }
            Act::Owe(_, at_most) => vec![Fact::Units(self.owe(take, *at_most).await)],
            Act::Reset => vec![Fact::Reset(store.reset(take).await.expect("an answer"))],
            Act::Evict(names) => {
                let Some((server, _)) = &self.server else {
                    self.is_over = true;
                    return None;
                };
                let mut connection = server.get_connection().expect("a running server");
                let lost = redis::cmd("DEL").arg(names).exec(&mut connection);
                lost.expect("they are gone");
                Vec::new()
            }
            Act::Hold(time) => {
                vec![Fact::Held(
                    store.hold(take, *time).await.expect("an answer"),
                )]
            }
            Act::Release(charge) => {
                let (count, holder) = self.permit(take, *charge);
                vec![Fact::Units(
                    store.refund(&count, holder).await.expect("an answer"),
                )]
            }
            Act::Renew(charge) => {
                let (count, holder) = self.permit(take, *charge);
                store.renew(&count, holder).await.expect("an answer");
                Vec::new()
            }
        })
    }
}

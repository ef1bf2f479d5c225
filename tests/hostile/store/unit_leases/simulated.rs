//! A fleet in paused time, with an oracle that adds up what was used: several processes, a network
//! that delays and loses, callers that leave, costs, refunds by anybody, several quotas.

use std::ops::Range;

use super::*;

#[derive(Debug, Clone, Copy)]
struct Fleet {
    seed: u64,
    algorithm: Algorithm,
    /// Max, and window.
    quotas: &'static [(u64, Duration)],
    lease: Duration,
    ticks: u64,
    max_cost: u64,
    has_faults: bool,
    has_refunds: bool,
    /// One process takes under a rule that has no lease.
    has_plain_rule: bool,
}

/// An allowed take.
#[derive(Debug, Clone)]
struct Use {
    at: u64,
    /// When the fixed window ends.
    window_end: u64,
    take: Take,
    receipt: Receipt,
    source: Source,
    given_back: u64,
    /// A refund got no answer: it may have been given back.
    is_claimed: bool,
    is_unclear: bool,
}

impl Use {
    /// Units that certainly count.
    fn counts(&self) -> u64 {
        match self.is_unclear {
            true => 0,
            false => self.receipt.units() - self.given_back,
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    uses: Vec<Use>,
    by_lease: u64,
    /// Units of takes that got no answer, or whose callers left.
    unknown: u64,
}

impl Outcome {
    fn uses_of(&self, key: &str) -> impl Iterator<Item = &Use> {
        self.uses
            .iter()
            .filter(move |one| one.take.key() == &Key::from(key))
    }
}

struct Process {
    store: Arc<dyn Store>,
    network: Distant,
    rule: Arc<Rule>,
}

struct World {
    clock: ManualClock,
    memory: Arc<MemoryStore>,
    processes: Vec<Process>,
    outcome: Arc<Mutex<Outcome>>,
}

fn record(
    world: (&ManualClock, &Arc<MemoryStore>),
    take: &Take,
    decision: &Decision,
) -> Option<Use> {
    let receipt = decision.receipt()?;
    let (clock, memory) = world;
    let now = clock.now();
    let (at, reset_after) = match decision.source() {
        Source::Lease => {
            let peek = memory.peek(take).poll_now().expect("memory is ready");
            let peek = peek.expect("there is room");
            (now, peek.quotas()[0].reset_after())
        }
        _ => (receipt.stamp(), decision.quotas()[0].reset_after()),
    };
    Some(Use {
        at,
        window_end: at + u64::try_from(reset_after.as_micros()).expect("short"),
        take: take.clone(),
        receipt,
        source: decision.source(),
        given_back: 0,
        is_claimed: false,
        is_unclear: false,
    })
}

impl Fleet {
    fn rule(&self, has_lease: bool) -> Arc<Rule> {
        let quotas = self.quotas.iter();
        let quotas = quotas.map(|(max, window)| Quota::new(*window, *max).expect("valid"));
        let rule = Rule::new("fleet", quotas).expect("valid");
        let rule = rule.with_algorithm(self.algorithm);
        Arc::new(match has_lease {
            true => rule.with_lease(self.lease).expect("leases"),
            false => rule,
        })
    }

    fn start(&self) -> World {
        let clock = clock_at(1_800_000_000_000_000);
        let memory = Arc::new(MemoryStore::new().clock(clock.clone()));
        let processes = (0..4).map(|at| {
            let network = Distant::new(Arc::clone(&memory)).ways(1, 1);
            let is_plain = at == 3;
            let store: Arc<dyn Store> = match is_plain {
                true => Arc::new(network.clone()),
                false => Arc::new(Resilient::bare(network.clone()).tokio_clock()),
            };
            let rule = self.rule(!is_plain || !self.has_plain_rule);
            Process {
                store,
                network,
                rule,
            }
        });
        World {
            clock: clock.clone(),
            processes: processes.collect(),
            memory,
            outcome: Arc::default(),
        }
    }

    async fn run(&self) -> World {
        let (world, mut random) = (self.start(), Random::new(self.seed));
        let max = self.quotas[0].0;
        let per_tick = (max * 1_000).div_ceil(self.quotas[0].1.as_micros() as u64 / 1_000) + 3_000;
        let mut demand = [0; 4];
        for tick in 0..self.ticks {
            if tick % 150 == 0 {
                let factors = [0, 0, 200, 500, 1_500, 3_000];
                demand = demand.map(|_| per_tick * factors[random.below(6) as usize] / 1_000 / 2);
            }
            for (process, demand) in world.processes.iter().zip(demand) {
                self.weather(&mut random, &process.network);
                let number = (demand + random.below(1_000)) / 1_000;
                for _ in 0..number.min(40) {
                    self.ask(&mut random, &world, process);
                }
            }
            if self.has_refunds && random.is(30) {
                refund(&mut random, &world);
            }
            world.step().await;
        }
        world
    }

    /// What the network is like for what is asked in this tick.
    fn weather(&self, random: &mut Random, network: &Distant) {
        let slow = random.is(4) && self.has_faults;
        let long = if slow { random.below(80) } else { 0 };
        let there = 1 + random.below(2) + long;
        let back = 1 + random.below(2) + if random.is(3) { long } else { 0 };
        network.set_ways(there, back);
        let fate = |random: &mut Random| match random.below(100) {
            0 => Fate::QuestionLost,
            1 => Fate::ReplyLost,
            _ => Fate::Answered,
        };
        if self.has_faults {
            network.takes_are(fate(random));
            network.refunds_are(fate(random));
        }
    }

    fn ask(&self, random: &mut Random, world: &World, process: &Process) {
        let key = if random.is(80) { "hot" } else { "warm" };
        let take = Take::new(Arc::clone(&process.rule), Key::from(key));
        let take = take.with_cost(1 + random.below(self.max_cost));
        let mut pending = process.store.take(&take);
        let answer = match pending.poll_now() {
            Some(answer) => {
                let is_dropped = self.has_faults && random.is(1);
                let decision = answer.expect("a decision");
                let mut outcome = world.outcome.lock().expect("no panic");
                if is_dropped {
                    outcome.unknown += take.cost();
                } else if let Some(used) = record((&world.clock, &world.memory), &take, &decision) {
                    outcome.by_lease += u64::from(used.source == Source::Lease);
                    outcome.uses.push(used);
                }
                return;
            }
            None => pending,
        };
        let patience = match self.has_faults && random.is(3) {
            true => millis(random.below(6)),
            false => HOUR,
        };
        let (clock, memory) = (world.clock.clone(), Arc::clone(&world.memory));
        let outcome = Arc::clone(&world.outcome);
        tokio::spawn(async move {
            let answer = timeout(patience, answer).await;
            let mut outcome = outcome.lock().expect("no panic");
            match answer {
                Ok(Ok(decision)) => {
                    let used = record((&clock, &memory), &take, &decision);
                    outcome.uses.extend(used);
                }
                _ => outcome.unknown += take.cost(),
            }
        });
    }

    fn check(&self, world: &World) {
        let outcome = world.outcome.lock().expect("no panic");
        for key in ["hot", "warm"] {
            let uses: Vec<_> = outcome.uses_of(key).collect();
            for (max, window) in self.quotas {
                match self.algorithm {
                    Algorithm::FixedWindow => check_fixed(self, &uses, *max),
                    _ => check_sliding(self, &uses, *max, window.as_micros() as u64),
                }
            }
        }
    }
}

fn check_sliding(fleet: &Fleet, uses: &[&Use], max: u64, window: u64) {
    let mut changes = BTreeMap::<u64, (u64, u64)>::new();
    for one in uses {
        let units = one.counts();
        changes.entry(one.at).or_default().0 += units;
        changes.entry(one.at + window).or_default().1 += units;
    }
    let mut inside = 0;
    for (at, (added, gone)) in changes {
        inside = inside + added - gone;
        let is_right = inside <= max;
        assert!(
            is_right,
            "law 1: {inside} of {max} in a window that ends at {at}: {fleet:?}"
        );
    }
}

fn check_fixed(fleet: &Fleet, uses: &[&Use], max: u64) {
    let mut windows = BTreeMap::<u64, u64>::new();
    for one in uses {
        *windows.entry(one.window_end).or_default() += one.counts();
    }
    for (end, units) in windows {
        let is_right = units <= max;
        assert!(
            is_right,
            "law 1: {units} of {max} in the window that ends at {end}: {fleet:?}"
        );
    }
}

/// Somebody refunds a charge, or a part of it.
fn refund(random: &mut Random, world: &World) {
    let mut outcome = world.outcome.lock().expect("no panic");
    let number = outcome.uses.len() as u64;
    if number == 0 {
        return;
    }
    // Mostly a late one.
    let late = 1 + random.below(200);
    let at = number - 1 - random.below(number.min(late));
    let at = usize::try_from(at).expect("small");
    let one = &mut outcome.uses[at];
    // Once, as a `Charge` does.
    if std::mem::replace(&mut one.is_claimed, true) {
        return;
    }
    let by = &world.processes[random.below(4) as usize].store;
    let part = 1 + random.below(one.take.cost() + 1);
    let refund = by.refund(&one.take.clone().with_cost(part), &one.receipt.clone());
    drop(outcome);
    let outcome = Arc::clone(&world.outcome);
    tokio::spawn(async move {
        let answer = refund.await;
        let mut outcome = outcome.lock().expect("no panic");
        let one = &mut outcome.uses[at];
        match answer {
            Ok(units) => {
                one.given_back += units;
                let is_right = one.given_back <= one.receipt.units();
                assert!(is_right, "law 15: given back twice");
            }
            Err(_) => one.is_unclear = true,
        }
    });
}

impl World {
    async fn step(&self) {
        self.clock.set(self.clock.now() + 1_000);
        advance(millis(1)).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }

    /// What has happened; nothing happens any more.
    fn end(&self) -> Outcome {
        std::mem::take(&mut *self.outcome.lock().expect("no panic"))
    }

    fn calm(&self) {
        for process in &self.processes {
            process.network.set_ways(1, 1);
            process.network.takes_are(Fate::Answered);
            process.network.refunds_are(Fate::Answered);
        }
    }
}

fn fleet(seed: u64, algorithm: Algorithm) -> Fleet {
    const ONE: &[&[(u64, Duration)]] = &[
        &[(300, SECOND)],
        &[(4_000, SECOND)],
        &[(60, SECOND)],
        &[(5_000, millis(2_500))],
    ];
    Fleet {
        seed,
        algorithm,
        quotas: ONE[seed as usize % 4],
        lease: millis(50),
        ticks: 4_000,
        max_cost: [1, 1, 3, 20][seed as usize / 4 % 4],
        has_faults: !seed.is_multiple_of(3),
        has_refunds: !seed.is_multiple_of(2),
        has_plain_rule: false,
    }
}

async fn simulate(fleets: impl Iterator<Item = Fleet>) {
    let (mut by_lease, mut uses) = (0, 0);
    for fleet in fleets {
        let world = fleet.run().await;
        fleet.check(&world);
        let outcome = world.outcome.lock().expect("no panic");
        by_lease += outcome.by_lease;
        uses += outcome.uses.len() as u64;
    }
    println!("{by_lease} of {uses} by leases");
    assert!(by_lease * 10 > uses, "{by_lease} of {uses} by leases");
}

/// The seeds of a test's fleets, from the first one on. `TIDEGATE_FLEETS` says how many.
fn seeds(first: u64) -> Range<u64> {
    let fleets = std::env::var("TIDEGATE_FLEETS");
    let fleets: u64 = fleets.map_or(4, |number| number.parse().expect("a number"));
    first..first + fleets
}

#[tokio::test(start_paused = true)]
async fn one_quota_is_never_exceeded() {
    for (first, algorithm) in [0, 16, 32].into_iter().zip(LEASED) {
        simulate(seeds(first).map(|seed| fleet(seed, algorithm))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn several_quotas_are_never_exceeded() {
    const TWO: &[(u64, Duration)] = &[(400, SECOND), (900, millis(3_100))];
    const OTHER: &[(u64, Duration)] = &[(2_000, millis(2_000)), (1_100, SECOND)];
    let fleets = seeds(48).map(|seed| Fleet {
        quotas: if seed % 2 == 0 { TWO } else { OTHER },
        ..fleet(seed, LEASED[seed as usize % 2])
    });
    simulate(fleets).await;
}

/// The same with a process whose rule has no lease.
#[tokio::test(start_paused = true)]
async fn a_taker_without_a_lease_does_not_exceed_it() {
    let fleets = seeds(64).map(|seed| Fleet {
        has_plain_rule: true,
        ..fleet(seed, LEASED[seed as usize % 2])
    });
    simulate(fleets).await;
}

/// What was used of a window that does not end and not refunded, and what the store counts once all
/// leases have ended, for each key.
async fn account(fleet: &Fleet, steps: usize) -> (Outcome, [(u64, u64); 2]) {
    let world = fleet.run().await;
    world.calm();
    for _ in 0..steps {
        world.step().await;
    }
    let outcome = world.end();
    let mut counts = [(0, 0); 2];
    for (count, key) in counts.iter_mut().zip(["hot", "warm"]) {
        let take = Take::new(fleet.rule(true), Key::from(key));
        let used = outcome.uses_of(key).map(Use::counts).sum();
        *count = (used, spent(&world.memory, &take).await);
    }
    (outcome, counts)
}

fn fleet_with_refunds(seed: u64, algorithm: Algorithm, has_faults: bool) -> Fleet {
    Fleet {
        quotas: &[(30_000, HOUR)],
        ticks: 1_500,
        has_faults,
        has_refunds: true,
        ..fleet(seed, algorithm)
    }
}

/// The store counts exactly what was used and not refunded. With losses it never counts less than
/// what was used.
#[tokio::test(start_paused = true)]
async fn the_account_is_balanced_and_losses_make_it_stricter_only() {
    for (first, has_losses, steps) in [(80, false, 200), (104, true, 300)] {
        for seed in seeds(first) {
            for algorithm in LEASED {
                let fleet = fleet_with_refunds(seed, algorithm, has_losses);
                let (outcome, counts) = account(&fleet, steps).await;
                assert!(has_losses || outcome.by_lease > 0 && outcome.unknown == 0);
                for (used, charged) in counts {
                    assert!(charged >= used, "law 1: {charged} for {used}: {fleet:?}");
                    assert!(has_losses || charged == used, "{charged} {used}: {fleet:?}");
                }
            }
        }
    }
}

/// What a leased answer says of the quota is never more than the store has.
#[tokio::test(start_paused = true)]
async fn fields_are_not_optimistic() {
    for algorithm in LEASED {
        let fleet = Fleet {
            quotas: &[(2_000, SECOND)],
            has_faults: false,
            has_refunds: false,
            max_cost: 3,
            ..fleet(7, algorithm)
        };
        let (world, mut random) = (fleet.start(), Random::new(7));
        let mut leased = 0;
        for _ in 0..2_500 {
            for process in &world.processes[..3] {
                for _ in 0..random.below(3) {
                    let take = Take::new(Arc::clone(&process.rule), Key::from("hot"));
                    let take = take.with_cost(1 + random.below(3));
                    let mut pending = process.store.take(&take);
                    let Some(answer) = pending.poll_now() else {
                        tokio::spawn(pending);
                        continue;
                    };
                    let told = answer.expect("a decision");
                    if told.source() != Source::Lease {
                        continue;
                    }
                    leased += 1;
                    let held = world.memory.peek(&take).await.expect("a decision");
                    // What the lease has left is charged in the store.
                    assert!(
                        told.reset_after() + millis(1) >= held.reset_after() - fleet.lease,
                        "{algorithm:?}: {told:?}, store: {held:?}"
                    );
                    assert_eq!(told.retry_after(), None);
                    let receipt = told.receipt().expect("charged");
                    assert_eq!(receipt.units(), take.cost());
                }
            }
            world.step().await;
            if random.is(20) {
                let process = &world.processes[random.below(3) as usize];
                let take = Take::new(Arc::clone(&process.rule), Key::from("hot"));
                let store = Arc::clone(&process.store);
                tokio::spawn(async move { store.take(&take).await });
            }
        }
        assert!(leased > 100, "{algorithm:?}: {leased}");
    }
}

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::decision::Source;
use tidegate::test_util::ManualClock;
use tidegate::{Key, MemoryStore, Quota, Resilient, Rule, Store, Take};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

use super::network::Network;
use super::outcome::Outcome;
use super::random::Random;
use super::remote::{Remote, SharedNetwork, lock};
use super::scenario::{Demand, MAX_LEASE, Mode, Scenario};

/// Simulates it from the beginning to the end.
pub(crate) fn run(scenario: &Scenario) -> Outcome {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let network = Arc::new(Mutex::new(Network::new(scenario)));
    // Made inside of it, the stores' clocks begin with the paused one.
    runtime.block_on(async { Fleet::new(scenario, &network).run().await });
    drop(runtime);
    lock(&network).outcome.clone()
}

struct Fleet<'a> {
    scenario: &'a Scenario,
    network: &'a SharedNetwork,
    processes: Vec<Process>,
    /// What part of the demand the process of each rank gets.
    weights: Vec<f64>,
    /// What the processes ask: some under a rule without a lease, in a mixed fleet.
    takes: [Take; 2],
    random: Random,
    /// The clock of all that is decided in a process's own memory.
    clock: ManualClock,
}

struct Process {
    link: usize,
    store: Arc<dyn Store>,
    take: Take,
    paused_until: u64,
}

impl<'a> Fleet<'a> {
    fn new(scenario: &'a Scenario, network: &'a SharedNetwork) -> Self {
        let processes = scenario.processes;
        let weight = |rank| match scenario.demand {
            Demand::Steady(_) | Demand::Pulses(_) => 1.0,
            Demand::Skewed(_) | Demand::Bursts(_) => 1.0 / (rank as f64 + 1.0).sqrt(),
        };
        let weights: Vec<f64> = (0..processes).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let mut fleet = Self {
            scenario,
            network,
            processes: Vec::new(),
            weights: weights.iter().map(|weight| weight / sum).collect(),
            takes: [true, false].map(|is_leased| {
                let rule = Arc::new(rule(scenario, is_leased));
                Take::new(rule, Key::from("hot"))
            }),
            random: Random::from_seed(scenario.seed),
            clock: ManualClock::default(),
        };
        fleet.processes = (0..processes).map(|number| fleet.start(number)).collect();
        fleet
    }

    /// Starts the process with this number. In a mixed fleet one of three leases, one has the
    /// lease in its rule alone, and one not even there.
    fn start(&self, number: usize) -> Process {
        let link = lock(self.network).connect();
        let remote = || Remote::new(Arc::clone(self.network), link);
        let store: Arc<dyn Store> = match self.scenario.mode {
            Mode::Plain => Arc::new(remote()),
            Mode::Mixed if matches!(number % 3, 1 | 2) => Arc::new(remote()),
            Mode::Cached => {
                let cached = Resilient::bare(remote()).denial_cache(Duration::from_millis(100));
                Arc::new(cached.tokio_clock())
            }
            Mode::Leased | Mode::Mixed => Arc::new(Resilient::bare(remote()).tokio_clock()),
            Mode::OwnPart | Mode::OwnWhole => {
                Arc::new(MemoryStore::new().clock(self.clock.clone()))
            }
        };
        Process {
            link,
            store,
            take: self.takes[usize::from(number % 3 == 2)].clone(),
            paused_until: 0,
        }
    }

    async fn run(mut self) {
        let begin = Instant::now();
        for tick in 1..=self.scenario.ticks() {
            sleep_until(begin + Duration::from_millis(tick)).await;
            self.clock.set(1_000 * tick);
            lock(self.network).advance();
            self.upset(tick);
            self.hurt(tick);
            // Tasks that wait for a lease get their answers.
            tokio::task::yield_now().await;
            self.ask(tick);
        }
    }

    fn upset(&self, tick: u64) {
        if let Some((at, upset)) = self.scenario.upset
            && at == tick
        {
            let mut network = lock(self.network);
            network.outcome.forgotten = network.server.upset(tick, upset, self.scenario.cycle());
        }
    }

    /// Partitions, crashes and pauses of random processes.
    fn hurt(&mut self, tick: u64) {
        let faults = self.scenario.faults;
        let chances = self.processes.len() as f64 / 1_000.0;
        if let Some(victim) = self.victim(chances * faults.partitions) {
            let until = tick + 1 + self.random.below(500);
            let mut network = lock(self.network);
            network.partition(self.processes[victim].link, until);
            network.outcome.partitions += 1;
        }
        if let Some(victim) = self.victim(chances * faults.pauses) {
            let until = tick + 1 + self.random.below(300);
            self.processes[victim].paused_until = until;
            let mut network = lock(self.network);
            network.pause(self.processes[victim].link, until);
            network.outcome.pauses += 1;
        }
        if let Some(victim) = self.victim(chances * faults.crashes) {
            let mut network = lock(self.network);
            network.crash(self.processes[victim].link);
            network.outcome.crashes += 1;
            drop(network);
            self.processes[victim] = self.start(victim);
        }
    }

    fn victim(&mut self, chance: f64) -> Option<usize> {
        let is_hurt = self.random.is_lucky(chance);
        is_hurt.then(|| self.random.below(self.processes.len() as u64) as usize)
    }

    /// The requests of a tick.
    fn ask(&mut self, tick: u64) {
        let rate = self.rate(tick);
        let count = self.processes.len();
        // Not always the same process comes first.
        let first = self.random.below(count as u64) as usize;
        for number in 0..count {
            let number = (first + number) % count;
            let demand = rate * self.weights[self.rank(number, tick)];
            let requests = (demand + self.random.fraction()) as u64;
            if tick < self.processes[number].paused_until {
                continue;
            }
            let (mut admitted, mut leased, mut answered) = (0, 0, 0);
            for _ in 0..requests {
                let Process { store, take, .. } = &self.processes[number];
                let mut pending = store.take(take);
                let answer = match pending.poll_now() {
                    Some(answer) => answer,
                    None => {
                        // The network counts it.
                        tokio::spawn(pending);
                        continue;
                    }
                };
                let decision = answer.expect("decides");
                answered += 1;
                admitted += u64::from(decision.is_allowed());
                leased += u64::from(decision.source() == Source::Lease);
            }
            let outcome = &mut lock(self.network).outcome;
            (0..admitted).for_each(|_| outcome.admit(tick));
            if outcome.is_measured(tick) {
                outcome.requests += requests;
                outcome.leased += leased;
                (0..answered).for_each(|_| outcome.answered(0));
            }
        }
    }

    /// Requests of all processes in this tick.
    fn rate(&self, tick: u64) -> f64 {
        let quota = self.scenario.max() as f64 / self.scenario.window as f64;
        let times = match self.scenario.demand {
            Demand::Steady(times) | Demand::Skewed(times) => times,
            Demand::Pulses(times) => match tick % 34 {
                0..10 => times * 3.4,
                _ => 0.0,
            },
            Demand::Bursts(times) => times * [1.0, 0.1, 1.0, 0.0][tick as usize / 700 % 4],
        };
        let ramp = (tick as f64 / self.scenario.ramp.max(1) as f64).min(1.0);
        quota * times * ramp
    }

    fn rank(&self, process: usize, tick: u64) -> usize {
        (process + 7 * (tick as usize / 200)) % self.processes.len()
    }
}

fn rule(scenario: &Scenario, is_leased: bool) -> Rule {
    let max = match scenario.mode {
        Mode::OwnPart => scenario.max() / scenario.processes as u64,
        _ => scenario.max(),
    };
    let window = Duration::from_millis(scenario.window);
    let quota = Quota::new(window, max).expect("a valid quota");
    let rule = Rule::new("feed", [quota]).expect("a valid rule");
    match scenario.mode {
        Mode::Leased | Mode::Cached => leased(rule),
        Mode::Mixed if is_leased => leased(rule),
        _ => rule,
    }
}

fn leased(rule: Rule) -> Rule {
    let lease = Duration::from_millis(MAX_LEASE);
    rule.with_lease(lease).expect("leases")
}

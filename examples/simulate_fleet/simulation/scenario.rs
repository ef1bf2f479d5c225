/// What is simulated. Times are in ticks of a millisecond.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) mode: Mode,
    pub(crate) processes: usize,
    /// Units of the quota per process and second.
    pub(crate) per_process: u64,
    pub(crate) window: u64,
    /// How long the demand grows at the beginning; zero if all of it is there from the beginning.
    pub(crate) ramp: u64,
    /// For how many cycles figures are taken, after the ramp and one cycle more.
    pub(crate) cycles: u64,
    pub(crate) demand: Demand,
    pub(crate) faults: Faults,
    /// Questions that the server decides in a tick.
    pub(crate) server_per_tick: u64,
    pub(crate) upset: Option<(u64, Upset)>,
    pub(crate) seed: u64,
}

/// How a process decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every request is a question to the server.
    Plain,
    /// Leases of the same store.
    Leased,
    /// Leases and a denial cache around the same store.
    Cached,
    /// Of three processes one leases, one has a rule with a lease and asks for every request, and
    /// one has a rule without a lease.
    Mixed,
    /// Each process has an equal part of the quota, in its memory.
    OwnPart,
    /// Each process has the whole quota, in its memory.
    OwnWhole,
}

/// What the fleet is asked for, as multiples of its quota.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Demand {
    /// The same of every process.
    Steady(f64),
    /// A few processes get most of it. Every 200 ms these are others.
    Skewed(f64),
    /// As skewed, and by turns this, a tenth of it, this, and nothing.
    Bursts(f64),
    /// For 10 of every 34 ms, so that leases are held while nobody asks.
    #[allow(dead_code, reason = "only the tests ask in pulses")]
    Pulses(f64),
}

/// Chances; of the last three, how many there are for each process in a second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// That a message is lost, in each direction.
    pub(crate) losses: f64,
    /// That a message takes up to 100 ms longer.
    pub(crate) delays: f64,
    pub(crate) partitions: f64,
    pub(crate) crashes: f64,
    pub(crate) pauses: f64,
}

/// What happens to the server once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Upset {
    /// A replica takes over that does not have the last second.
    Failover,
    /// The server's clock is moved by this, in milliseconds.
    Step(i64),
}

/// Rules shorten it to a fiftieth of the window.
pub(super) const MAX_LEASE: u64 = 50;

/// How far a replica is behind.
pub(super) const REPLICA_DELAY: u64 = 1_000;

impl Scenario {
    /// A healthy fleet: 1,000 units per process and second, and a server without bounds.
    pub(crate) fn new(mode: Mode, processes: usize, demand: Demand) -> Self {
        Self {
            mode,
            processes,
            per_process: 1_000,
            window: 1_000,
            ramp: 0,
            cycles: 2,
            demand,
            faults: Faults::default(),
            server_per_tick: u64::MAX,
            upset: None,
            seed: 1,
        }
    }

    /// Units of the quota of the whole fleet.
    pub(crate) const fn max(&self) -> u64 {
        self.per_process * self.processes as u64 * self.window / 1_000
    }

    /// How long the server counts a unit: the window, and the lease where there are leases. Demand
    /// above the quota uses it up once in this time, so figures are taken over whole cycles.
    pub(super) fn cycle(&self) -> u64 {
        match self.mode {
            Mode::Leased | Mode::Cached | Mode::Mixed => {
                self.window + MAX_LEASE.min(self.window / 50)
            }
            Mode::Plain | Mode::OwnPart | Mode::OwnWhole => self.window,
        }
    }

    /// The first tick of which figures are taken.
    pub(super) fn begin(&self) -> u64 {
        self.ramp + self.cycle()
    }

    pub(super) fn measured(&self) -> u64 {
        self.cycles * self.cycle()
    }

    pub(super) fn ticks(&self) -> u64 {
        self.begin() + self.measured()
    }
}

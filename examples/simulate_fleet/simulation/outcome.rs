use super::network::TIMEOUT;
use super::scenario::Scenario;

/// What a scenario adds up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    max: u64,
    window: u64,
    /// The first tick of which figures are taken.
    begin: u64,
    measured: u64,
    /// Units that were used, for each tick: a plain one when the server decided, a leased one when
    /// the process handed it out.
    used: Vec<u64>,
    pub(super) requests: u64,
    /// Takes and refunds that the server was asked for, in each tick.
    questions: Vec<u64>,
    /// Requests without an answer.
    pub(super) failed: u64,
    /// Requests that were admitted from a lease.
    pub(super) leased: u64,
    /// Requests by how many ticks they waited.
    waited: Vec<u64>,
    /// At most how many units the server has forgotten before their time.
    pub(crate) forgotten: u64,
    pub(crate) crashes: u64,
    pub(crate) partitions: u64,
    pub(crate) pauses: u64,
}

impl Outcome {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let ticks = usize::try_from(scenario.ticks()).expect("fits");
        Self {
            max: scenario.max(),
            window: scenario.window,
            begin: scenario.begin(),
            measured: scenario.measured(),
            used: vec![0; ticks + 1],
            requests: 0,
            questions: vec![0; ticks + 1],
            failed: 0,
            leased: 0,
            waited: vec![0; usize::try_from(TIMEOUT).expect("fits") + 1],
            forgotten: 0,
            crashes: 0,
            partitions: 0,
            pauses: 0,
        }
    }

    pub(super) const fn is_measured(&self, tick: u64) -> bool {
        tick >= self.begin
    }

    pub(super) fn admit(&mut self, tick: u64) {
        self.used[usize::try_from(tick).expect("fits")] += 1;
    }

    pub(super) fn asked(&mut self, tick: u64) {
        self.questions[usize::try_from(tick).expect("fits")] += 1;
    }

    pub(super) fn answered(&mut self, ticks: u64) {
        let longest = self.waited.len() - 1;
        let ticks = usize::try_from(ticks).expect("fits");
        self.waited[ticks.min(longest)] += 1;
    }

    /// Units used in the window that ends with each tick, as parts of max.
    pub(crate) fn windows(&self) -> Vec<f64> {
        let max = self.max as f64;
        let sums = self.sums().into_iter();
        sums.map(|sum| sum as f64 / max).collect()
    }

    fn sums(&self) -> Vec<u64> {
        let window = usize::try_from(self.window).expect("fits");
        let mut sum = 0;
        let ticks = self.used.iter().enumerate();
        let sums = ticks.map(|(tick, used)| {
            sum += used;
            sum -= tick.checked_sub(window).map_or(0, |left| self.used[left]);
            sum
        });
        sums.collect()
    }

    /// The most units of any window that are more than max.
    pub(crate) fn excess(&self) -> u64 {
        let most = self.sums().into_iter().max().unwrap_or(0);
        most.saturating_sub(self.max)
    }

    pub(crate) fn windows_above_max(&self) -> usize {
        let sums = self.sums().into_iter();
        sums.filter(|sum| *sum > self.max).count()
    }

    /// The most of any window, as a part of max.
    pub(crate) fn most(&self) -> f64 {
        self.windows().into_iter().fold(0.0, f64::max)
    }

    pub(crate) fn leased_share(&self) -> f64 {
        self.leased as f64 / self.requests.max(1) as f64
    }

    pub(crate) fn failed_share(&self) -> f64 {
        self.failed as f64 / self.requests.max(1) as f64
    }

    /// Used units, as a part of what the quota admits in that time.
    pub(crate) fn used_share(&self) -> f64 {
        let begin = usize::try_from(self.begin).expect("fits");
        let end = begin + usize::try_from(self.measured).expect("fits");
        let used: u64 = self.used[begin..end].iter().sum();
        used as f64 * self.window as f64 / (self.max as f64 * self.measured as f64)
    }

    pub(crate) fn questions_per_request(&self) -> f64 {
        let begin = usize::try_from(self.begin).expect("fits");
        let questions: u64 = self.questions[begin..].iter().sum();
        questions as f64 / self.requests.max(1) as f64
    }

    /// The same in the busiest 100 ms, to the mean of the requests.
    pub(crate) fn busiest(&self) -> f64 {
        const SPAN: usize = 100;
        let begin = usize::try_from(self.begin).expect("fits");
        let spans = self.questions[begin..].chunks_exact(SPAN);
        let most: u64 = spans.map(|span| span.iter().sum()).max().unwrap_or(0);
        let requests = self.requests.max(1) as f64 * SPAN as f64 / self.measured as f64;
        most as f64 / requests
    }

    /// How many milliseconds all but a hundredth of the requests waited at most.
    pub(crate) fn p99(&self) -> usize {
        let all: u64 = self.waited.iter().sum();
        let mut seen = 0;
        let mut waited = self.waited.iter();
        let at = waited.position(|requests| {
            seen += requests;
            seen * 100 >= all * 99
        });
        at.unwrap_or(0)
    }
}

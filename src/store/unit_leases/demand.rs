use super::moment::Moment;

/// How many units were granted in the last period, and in the one that runs.
#[derive(Debug)]
pub(super) struct Demand {
    began: Moment,
    running: u64,
    last: u64,
}

impl Demand {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            began: now,
            running: 0,
            last: 0,
        }
    }

    /// Units are granted. Periods are as long as leases.
    pub(super) fn add(&mut self, now: Moment, period: u64, units: u64) {
        self.begin_period(now, period);
        self.running = self.running.saturating_add(units);
    }

    /// Units of the last whole period, or of the running one if these are more.
    pub(super) fn of_a_period(&mut self, now: Moment, period: u64) -> u64 {
        self.begin_period(now, period);
        self.last.max(self.running)
    }

    /// Begins a period if the running one is over.
    fn begin_period(&mut self, now: Moment, period: u64) {
        let elapsed = now.since(self.began);
        if elapsed >= period {
            self.last = if elapsed < 2 * period {
                self.running
            } else {
                0
            };
            (self.began, self.running) = (now, 0);
        }
    }

    pub(super) fn is_idle(&self, now: Moment, period: u64) -> bool {
        now.since(self.began) >= 2 * period
    }
}

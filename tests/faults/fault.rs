//! One fault under load, from before it until it is over, and its row of the table.

use tokio::time::Instant;

use crate::load::{Answer, Load, SHARED, TIMEOUT};
use crate::*;

/// What a busy machine may add to a time-out.
const HICCUP: Duration = SECOND;
/// How long a store may need to be back, on a busy machine.
const BACK: Duration = Duration::from_secs(10);

pub(crate) struct Fault {
    name: &'static str,
    store: RedisStore,
    load: Load,
    begun: Instant,
    over: Instant,
    /// The kind that the fault is told by.
    told_by: Option<StoreErrorKind>,
    /// And others that may come with it.
    others: Vec<StoreErrorKind>,
    /// How often what was counted before is lost with it.
    losses: u64,
}

impl Fault {
    /// A load on the server at this address, which is well.
    pub(crate) async fn at(name: &'static str, url: &str) -> Self {
        let store = kit::load::store(url).await;
        let fault = Self::before(name, store);
        fault.load.is_whole().await;
        // A connection that breaks as soon as it was made is another fault: the next one is had
        // later.
        sleep(millis(200)).await;
        fault
    }

    /// A load on a server that is not well yet.
    pub(crate) fn before(name: &'static str, store: RedisStore) -> Self {
        let store = store.timeout(TIMEOUT);
        let begun = Instant::now();
        Self {
            name,
            load: Load::start(&store),
            store,
            begun,
            over: Instant::now(),
            told_by: None,
            others: Vec::new(),
            losses: 0,
        }
    }

    /// What callers are to get, and what is waited for: the first of these kinds. They may get the
    /// others besides.
    pub(crate) fn gives(mut self, kinds: &[StoreErrorKind]) -> Self {
        self.told_by = Some(kinds[0]);
        self.or(&kinds[1..])
    }

    /// What they may get.
    pub(crate) fn or(mut self, kinds: &[StoreErrorKind]) -> Self {
        self.others = kinds.to_vec();
        self
    }

    /// The server loses what it has counted, at most so often.
    pub(crate) fn forgets(mut self, times: u64) -> Self {
        self.losses = times;
        self
    }

    /// It lasts so long, and until callers have got what they are to get.
    pub(crate) async fn lasts(&self, duration: Duration) {
        sleep(duration).await;
        let started = Instant::now();
        while !self.is_told() {
            let (name, told_by) = (self.name, self.told_by);
            let errors = self.load.log().errors.clone();
            let in_time = started.elapsed() <= PATIENT;
            assert!(in_time, "{name}: not {told_by:?}, but {errors:#?}");
            sleep(millis(1)).await;
        }
    }

    /// Whether somebody has got what they are to get.
    pub(crate) fn is_told(&self) -> bool {
        let is_told = |kind| self.load.failed_since(self.begun, |other| other == kind);
        self.told_by.is_none_or(is_told)
    }

    /// From here on it counts.
    pub(crate) fn begins(mut self) -> Self {
        self.begun = Instant::now();
        self
    }

    /// The server accepts again, as of now: all has to be well by itself.
    pub(crate) async fn ends(mut self) {
        self.over = Instant::now();
        self.load.is_whole().await;
        sleep(millis(50)).await;
        self.load.stop().await;
        let answers = self.load.log().answers.clone();
        let counted = self.load.counted(&self.store).await;
        self.check(&answers, counted);
    }

    fn check(&self, answers: &[Answer], counted: [u64; 2]) {
        let name = self.name;
        let in_it = answers.iter().filter(|answer| answer.answered > self.begun);
        let slowest = in_it.clone().map(|answer| answer.answered - answer.asked);
        let slowest = slowest.max().expect("somebody asked");
        let is_back = |answer: &&Answer| answer.answered >= self.over && answer.allowed.is_ok();
        let back = in_it.clone().find(is_back);
        let back = back.expect("it is back").answered - self.over;

        let mut kinds = BTreeMap::new();
        for kind in in_it.clone().filter_map(|answer| answer.allowed.err()) {
            *kinds.entry(format!("{kind:?}")).or_insert(0_usize) += 1;
            // A busy machine is late at any time.
            let expected = self.told_by == Some(kind) || kind == StoreErrorKind::Timeout;
            let expected = expected || self.others.contains(&kind);
            assert!(
                expected,
                "{name}: {kind:?} of {:#?}",
                &self.load.log().errors
            );
        }
        let counts = self.counts(answers, counted);
        let kinds = kinds.iter().map(|(kind, times)| format!("{kind} {times}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let kinds = if kinds.is_empty() { "no error" } else { &kinds };
        println!("| {name} | {kinds} | {slowest:.1?} | {counts} | {back:.1?} |");

        assert!(slowest <= TIMEOUT + HICCUP, "{name}: {slowest:?}");
        assert!(back <= BACK, "{name}: {back:?}");
        let strangers = self.load.log().strangers;
        assert_eq!(strangers, 0, "{name}: somebody else's answers");
    }

    /// What was allowed is counted, and nothing else but what nobody knows the end of.
    fn counts(&self, answers: &[Answer], counted: [u64; 2]) -> String {
        let mut allowed = [0; 2];
        let mut unknown = [0; 2];
        for answer in answers {
            for of in 0..2 {
                match answer.allowed {
                    Ok(units) => allowed[of] += units[of],
                    Err(kind) if may_have_charged(kind, answer) => unknown[of] += answer.units[of],
                    Err(_) => {}
                }
            }
        }
        let (name, of_all) = (self.name, allowed[0]);
        let most = SHARED.saturating_mul(self.losses.saturating_add(1));
        assert!(allowed[1] <= most, "{name}: {allowed:?}");
        if self.losses > 0 {
            return format!("{of_all} allowed, some forgotten");
        }
        for of in 0..2 {
            let range = allowed[of]..=allowed[of] + unknown[of];
            let is = counted[of];
            assert!(range.contains(&is), "{name}: {is} counted, {range:?}");
        }
        let more = counted[0] - of_all;
        format!("{of_all} allowed, and {more} of {} that failed", unknown[0])
    }
}

/// Whether a call that ended like this may have charged something. Of a batch, one call may be
/// refused and not another.
fn may_have_charged(kind: StoreErrorKind, answer: &Answer) -> bool {
    let is_batch = answer.units.iter().all(|&units| units > 0);
    use StoreErrorKind::{Protocol, Timeout, Unavailable};
    is_batch || matches!(kind, Timeout | Unavailable | Protocol)
}

//! One cell of the matrix: a fault meets a call, alone and in a flight with others, and ends.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kit::faults::{Contents, FOREIGN, Fault, Site};
use tidegate::store::StoreErrorKind as Kind;
use tokio::time::Instant;

use crate::beside::{Beside, Neighbours, PATH};
use crate::calls::{Case, Client, Failure, Told};
use crate::*;

/// What a caller gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gets {
    /// The answer of a server that is well.
    Answer,
    /// One of these errors, and nothing was done.
    Error(&'static [Kind]),
    /// The answer, where the call gets along without what fails; or one of these errors, and then
    /// nothing was done.
    AnswerOr(&'static [Kind]),
    /// One of these errors, and it was done once, or not at all.
    Unknown(&'static [Kind]),
    /// The answer, or one of these errors, by what the connection was about; it was done once, or
    /// not at all.
    Either(&'static [Kind]),
    /// The answer, once the fault is over.
    Waits,
}

impl Gets {
    fn is(self, told: &Told) -> bool {
        use Gets::{Answer, AnswerOr, Either, Error, Unknown, Waits};
        match (self, told) {
            (Answer | AnswerOr(_) | Either(_) | Waits, Ok(())) => true,
            (Error(kinds) | AnswerOr(kinds) | Unknown(kinds) | Either(kinds), Err(failure)) => {
                matches!(failure, Failure::Store(kind) if kinds.contains(kind))
            }
            _ => false,
        }
    }

    /// Whether a caller who was told an error knows that nothing was done.
    fn is_known(self) -> bool {
        !matches!(self, Self::Unknown(_) | Self::Either(_))
    }
}

/// The time-out where only it ends a call.
const HASTY: Duration = millis(250);
/// The same for calls that are asked one after the other.
const HASTIER: Duration = millis(100);
/// What a busy machine adds.
const HICCUP: Duration = Duration::from_secs(2);

/// What is told of a call that takes too long.
const NO_ANSWER: &str = "no answer";

/// How late a thread that only sleeps has been, in all: a busy machine delays calls, too.
fn lateness() -> Duration {
    static MICROS: AtomicU64 = AtomicU64::new(0);
    static BEGIN: Once = Once::new();
    let tick = || {
        let began = std::time::Instant::now();
        std::thread::sleep(millis(10));
        MICROS.fetch_add(began.elapsed().as_micros() as u64 - 10_000, Relaxed);
    };
    let ticks = move || std::iter::repeat_with(tick).for_each(drop);
    BEGIN.call_once(|| drop(std::thread::spawn(ticks)));
    Duration::from_micros(MICROS.load(Relaxed))
}

/// What came of one call, and after which time, without what the machine was late.
type Asked = (usize, Told, Duration);

async fn timed(at: usize, asked: impl Future<Output = Told>) -> Asked {
    let (began, late) = (Instant::now(), lateness());
    let told = timeout(PATIENT / 2, asked).await;
    let told = told.unwrap_or_else(|_| Err(Failure::Other(NO_ANSWER.to_owned())));
    (at, told, began.elapsed().saturating_sub(lateness() - late))
}

/// A site, what is asked there, and how all was before.
struct Cell {
    fault: Fault,
    gets: Gets,
    site: Site,
    cases: Vec<Case>,
    patient: Client,
    client: Client,
    neighbours: Neighbours,
}

/// The fault meets the call: the laws hold, the caller gets this, and its neighbours get that.
pub(crate) async fn check(
    fault: Fault,
    beside: Beside,
    call: impl AsyncFn(&Client) -> Vec<Case>,
    gets: Gets,
) {
    let mut cell = Cell::start(fault, call, gets).await;
    let mut counts = Vec::new();
    for case in &cell.cases {
        counts.push(case.count().await);
    }
    let before = cell.site.contents();
    let mut asked = cell.ask_alone().await;
    asked.extend(cell.ask_together(beside).await);
    cell.check_told(&asked);
    if !matches!(gets, Gets::Answer | Gets::Waits) && gets.is_known() {
        let untouched = asked.iter().filter(|(_, told, _)| told.is_err());
        let untouched: Vec<_> = untouched.map(|(at, ..)| *at).collect();
        let only_errors = asked.iter().all(|(_, told, _)| told.is_err());
        assert!(!untouched.is_empty(), "{fault:?} meets nobody");
        if only_errors {
            cell.check_untouched(&before);
        }
    }
    cell.check_expiries();
    let healed = cell.ask_when_it_is_over().await;
    cell.check_counts(&counts, &asked, &healed).await;
    cell.check_expiries();
    cell.neighbours.check_count(&cell.patient, beside).await;
}

/// Law 10: a value of each type under each key of the call. The caller gets an answer or an error
/// of its own type, not one that stands for a script that failed; neighbours notice nothing; and
/// when the value is gone, all is well.
pub(crate) async fn check_foreign_values(call: impl AsyncFn(&Client) -> Vec<Case>) {
    let mut cell = Cell::start(Fault::Foreign(FOREIGN[0]), call, Gets::Answer).await;
    for foreign in FOREIGN {
        cell.fault = Fault::Foreign(foreign);
        cell.site.change(cell.fault);
        for at in 0..cell.cases.len() {
            for key in 0..cell.cases[at].keys().len() {
                let keys = cell.cases[at].keys();
                cell.site.begin(&keys[key..=key]).await;
                let asked = timed(at, cell.cases[at].ask(&cell.patient));
                let beside = cell
                    .neighbours
                    .ask(&cell.patient, cell.fault, Beside::Unharmed);
                let ((_, told, _), ()) = tokio::join!(asked, beside);
                cell.site.end().await;
                let is_right = match &told {
                    Ok(()) | Err(Failure::Store(Kind::WrongType)) => true,
                    Err(Failure::Store(_)) => false,
                    Err(Failure::Other(what)) => what != NO_ANSWER,
                };
                let name = cell.name(at);
                assert!(is_right, "law 10: {name}, {}: {told:?}", keys[key]);
            }
            let healed = timed(at, cell.cases[at].ask(&cell.patient)).await;
            // Of a count that began afresh there may be nothing to give back.
            let is_right = matches!(&healed.1, Ok(()) | Err(Failure::Other(_)));
            let name = cell.name(at);
            assert!(is_right, "law 10: {name} when it is gone: {:?}", healed.1);
        }
    }
    cell.check_expiries();
}

impl Cell {
    async fn start(fault: Fault, call: impl AsyncFn(&Client) -> Vec<Case>, gets: Gets) -> Self {
        let site = Site::start(fault).await;
        let patient = Client::connect(&site.url(), PATIENT).await;
        let client = match fault.is_silent() {
            true => patient.within(HASTY),
            false => patient.clone(),
        };
        Self {
            cases: call(&patient).await,
            neighbours: Neighbours::ready(&patient).await,
            fault,
            gets,
            site,
            patient,
            client,
        }
    }

    fn name(&self, case: usize) -> String {
        format!("{:?}, {}", self.fault, self.cases[case].name)
    }

    fn keys(&self) -> Vec<String> {
        self.cases.iter().flat_map(|case| case.keys()).collect()
    }

    /// One after the other, each as the only call of its flight.
    async fn ask_alone(&mut self) -> Vec<Asked> {
        let mut asked = Vec::new();
        if self.gets == Gets::Waits || self.cases[0].is_slow {
            return asked;
        }
        if !self.fault.is_momentary() {
            self.site.begin(&self.keys()).await;
        }
        let client = match self.fault.is_silent() {
            true => self.patient.within(HASTIER),
            false => self.patient.clone(),
        };
        for at in 0..self.cases.len() {
            let case = &self.cases[at];
            if self.fault.is_momentary() {
                self.site.begin(&case.keys()).await;
            }
            let told = timed(at, case.ask(&client)).await;
            let name = self.name(at);
            assert!(
                self.gets.is(&told.1),
                "{name}: {:?}, expected {:?}",
                told.1,
                self.gets
            );
            asked.push(told);
            if self.fault.is_momentary() {
                self.site.end().await;
                self.until_well().await;
            }
        }
        asked
    }

    /// All at once, between neighbours. Then the fault ends.
    async fn ask_together(&mut self, beside: Beside) -> Vec<Asked> {
        let has_begun = self.gets != Gets::Waits && !self.cases[0].is_slow;
        if self.fault.is_momentary() || !has_begun {
            self.site.begin(&self.keys()).await;
        }
        let asked = self.cases.iter().enumerate();
        let asked = asked.map(|(at, case)| tokio::spawn(timed(at, case.ask(&self.client))));
        let asked: Vec<_> = asked.collect();
        self.neighbours.ask(&self.client, self.fault, beside).await;
        if self.gets == Gets::Waits {
            sleep(HASTY + millis(50)).await;
            for (at, asked) in asked.iter().enumerate() {
                let is_right = self.fault.is_momentary() || !asked.is_finished();
                assert!(is_right, "{} is answered meanwhile", self.name(at));
            }
            self.site.end().await;
        }
        let answers = timeout(PATIENT, join_all(asked)).await;
        let answers = answers.unwrap_or_else(|_| panic!("law 6: {:?}: no answer", self.fault));
        if self.gets != Gets::Waits {
            self.site.end().await;
        }
        let answers = answers.into_iter();
        answers.map(|asked| asked.expect("no panic")).collect()
    }

    fn check_told(&self, asked: &[Asked]) {
        let wrong = asked.iter().filter(|(_, told, _)| !self.gets.is(told));
        let wrong = wrong.map(|(at, told, _)| format!("{}: {told:?}", self.name(*at)));
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "not {:?}: {wrong:#?}", self.gets);
        for (at, _, took) in asked {
            let is_late = *took > 2 * HASTY + HICCUP;
            let may_be = self.gets == Gets::Waits || self.cases[*at].is_slow;
            let name = self.name(*at);
            assert!(may_be || !is_late, "law 6: {name} took {took:?}");
        }
    }

    /// Laws 2 and 10: nothing was written for those who were told an error.
    fn check_untouched(&self, before: &Contents) {
        let own = |contents: Contents| -> Contents {
            let of_others = format!("CurrentLimiter:{PATH}");
            let contents = contents.into_iter();
            contents
                .filter(|(name, _)| !name.starts_with(&of_others))
                .collect()
        };
        let (before, after) = (own(before.clone()), own(self.site.contents()));
        let changed = after
            .iter()
            .filter(|(name, now)| before.get(*name) != Some(now));
        let changed: Vec<_> = changed.collect();
        assert!(changed.is_empty(), "{:?}: written: {changed:?}", self.fault);
        assert_eq!(before.len(), after.len(), "{:?}: deleted", self.fault);
    }

    /// Law 4, also of keys that were written in part. The rate of a limiter is kept.
    fn check_expiries(&self) {
        for (name, (expires, _)) in self.site.contents() {
            let is_kept = name.starts_with("rate-");
            assert!(expires >= 0 || is_kept, "law 4: {:?}: {name}", self.fault);
        }
    }

    /// Whoever asks now gets an answer.
    async fn until_well(&self) {
        if self.fault.breaks_connections() {
            let mut answers = 0;
            eventually("it is back", async || {
                match self.neighbours.look(&self.patient).await {
                    true => answers += 1,
                    false => answers = 0,
                }
                answers == 3
            })
            .await;
        }
    }

    /// The next calls, alone and together: as if nothing had been.
    async fn ask_when_it_is_over(&self) -> Vec<Asked> {
        self.until_well().await;
        let mut asked = Vec::new();
        for (at, case) in self.cases.iter().enumerate() {
            asked.push(timed(at, case.ask(&self.patient)).await);
        }
        if !self.cases[0].is_slow {
            let cases = self.cases.iter().enumerate();
            let together = cases.map(|(at, case)| timed(at, case.ask(&self.patient)));
            asked.extend(join_all(together).await);
        }
        for (at, told, _) in &asked {
            assert_eq!(*told, Ok(()), "{} when it is over", self.name(*at));
        }
        asked
    }

    /// What was answered was done once, in all counts of the call; what failed was not.
    async fn check_counts(&self, counts: &[Vec<i64>], asked: &[Asked], healed: &[Asked]) {
        for (at, case) in self.cases.iter().enumerate() {
            let of_case = asked.iter().chain(healed).filter(|(of, ..)| *of == at);
            let (done, failed): (Vec<_>, Vec<_>) = of_case.partition(|(_, told, _)| told.is_ok());
            let done = done.len() as i64;
            let unknown = match self.gets.is_known() {
                true => 0,
                false => failed.len() as i64,
            };
            let is_right = |now: &[i64]| case.can_become(&counts[at], done, unknown, now);
            let mut now = case.count().await;
            let began = Instant::now();
            while !case.gives_back.is_empty() && !is_right(&now) && began.elapsed() < PATIENT / 2 {
                sleep(millis(20)).await;
                now = case.count().await;
            }
            let (name, before) = (self.name(at), &counts[at]);
            assert!(
                is_right(&now),
                "{name}: {before:?} before, {now:?} after {done} answers and {failed:?}"
            );
        }
    }
}

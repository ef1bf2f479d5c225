//! Replies of whole flights that are lost, or that nobody has asked for, on a connection that
//! stays: no caller hears the answer to another caller's question, and soon all is well.
//!
//! The proxy counts what the client writes in one burst and breaks the replies to just that.

mod callers;
mod connecting;
mod topologies;
mod waiters;

use futures_util::{StreamExt, stream};
use kit::proxy::FaultTrace;

use crate::prelude::*;
use callers::{Kind, PAUSE, Trouble, World};

/// Of all callers of a world.
const TIMEOUT: Duration = millis(200);
/// Silence after which a connection is replaced, at most.
const SILENCE: Duration = Duration::from_secs(1);
/// Above twice the time-out: what a busy machine takes to wake up.
const SLACK: Duration = millis(100);

const LOSSES: [FlightFault; 5] = [
    FlightFault::Lose(Part::All),
    FlightFault::Lose(Part::FirstHalf),
    FlightFault::Lose(Part::SecondHalf),
    FlightFault::Lose(Part::Middle),
    FlightFault::Lose(Part::Last),
];

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
const NOPERM: &str = "-NOPERM User gate has no permissions to run the 'evalsha' command";

/// Errors of the server instead of answers: whoever is refused hears so, and nobody else loses an
/// answer or the connection.
const REFUSALS: [FlightFault; 6] = [
    FlightFault::Replace(Part::All, LOADING),
    FlightFault::Replace(Part::FirstHalf, LOADING),
    FlightFault::Replace(Part::Last, LOADING),
    FlightFault::Replace(Part::All, NOPERM),
    FlightFault::Replace(Part::Middle, NOPERM),
    FlightFault::Replace(Part::Last, NOPERM),
];

/// Those that can look like a flight of few questions.
const ADDITIONS: [FlightFault; 5] = [
    FlightFault::Add(Extra::EarlierFlight, Spot::Before),
    FlightFault::Add(Extra::EarlierReply, Spot::Before),
    FlightFault::Add(Extra::Time, Spot::Before),
    FlightFault::Add(Extra::Time, Spot::Within),
    FlightFault::Add(Extra::EarlierFlight, Spot::After),
];

/// A question and what became of it.
#[derive(Debug)]
struct Record {
    kind: Kind,
    caller: u64,
    asked: Instant,
    answered: Instant,
    trouble: Option<Trouble>,
}

impl Record {
    fn is_wrong(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Wrong(_)))
    }

    fn has_failed(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Failed(_)))
    }

    /// To ask whether the machine is to blame.
    fn lost(&self) -> Lost {
        Lost {
            asked: self.asked,
            answered: self.answered,
            why: String::new(),
        }
    }
}

/// Callers that ask over and over.
struct Load {
    stop: Arc<AtomicBool>,
    records: Arc<Mutex<Vec<Record>>>,
    tasks: tokio::task::JoinSet<()>,
    callers: Vec<(Kind, u64)>,
}

impl Load {
    /// Each caller of each kind asks on its own.
    fn of_many(world: &Arc<World>, kinds: &[Kind], callers: u64) -> Self {
        let pairs = |&kind| (0..callers).map(move |caller| (kind, caller));
        let pairs: Vec<_> = kinds.iter().flat_map(pairs).collect();
        let turns = pairs.iter().map(|pair| vec![*pair]).collect();
        Self::start(world, pairs, turns)
    }

    /// The callers of one kind ask one after the other: never two at a time.
    fn of_one(world: &Arc<World>, kind: Kind) -> Self {
        let pairs: Vec<_> = (0..4).map(|caller| (kind, caller)).collect();
        Self::start(world, pairs.clone(), vec![pairs])
    }

    fn start(world: &Arc<World>, callers: Vec<(Kind, u64)>, turns: Vec<Vec<(Kind, u64)>>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let records = Arc::<Mutex<Vec<_>>>::default();
        let mut tasks = tokio::task::JoinSet::new();
        for turn in turns {
            let (stop, records) = (Arc::clone(&stop), Arc::clone(&records));
            let world = Arc::clone(world);
            tasks.spawn(async move {
                for round in world.next_rounds() {
                    for &(kind, caller) in &turn {
                        let asked = Instant::now();
                        let trouble = world.ask(kind, caller, round).await.err();
                        let record = Record {
                            kind,
                            caller,
                            asked,
                            answered: Instant::now(),
                            trouble,
                        };
                        records.lock().expect("nobody panics").push(record);
                        sleep(PAUSE).await;
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                }
            });
        }
        Self {
            stop,
            records,
            tasks,
            callers,
        }
    }

    /// Every caller has had an answer since.
    async fn all_answered(&self, since: Instant) {
        let began = Instant::now();
        while let Some(caller) = self.silent(since) {
            let after = began.elapsed();
            assert!(after < Duration::from_secs(60), "{caller:?} hears nothing");
            sleep(PAUSE).await;
        }
    }

    /// A caller that has had no answer since.
    fn silent(&self, since: Instant) -> Option<(Kind, u64)> {
        let records = self.records.lock().expect("nobody panics");
        let mut callers = self.callers.iter().copied();
        callers.find(|&(kind, caller)| {
            !records.iter().any(|one| {
                let own = one.kind == kind && one.caller == caller;
                own && one.asked >= since && one.trouble.is_none()
            })
        })
    }

    async fn end(mut self) -> Vec<Record> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no panic");
        }
        std::mem::take(&mut *self.records.lock().expect("nobody panics"))
    }
}

/// What a fault has hit, if anything within three seconds: a flight whose connection breaks
/// meanwhile is not hit.
async fn traced(proxy: &Proxy) -> Option<FaultTrace> {
    let armed = Instant::now();
    while armed.elapsed() < Duration::from_secs(3) {
        let trace = proxy.fault_trace();
        if trace.hit.is_some() {
            return Some(trace);
        }
        sleep(millis(1)).await;
    }
    None
}

/// Waits until the fault has hit a flight.
async fn hit(world: &World, fault: FlightFault, contains: &str) -> FaultTrace {
    for _ in 0..5 {
        world.proxies[0].break_flight(fault, contains, 0);
        if let Some(trace) = traced(&world.proxies[0]).await {
            return trace;
        }
    }
    panic!("{fault:?}: no flight with {contains}");
}

/// One fault under a load: what is wrong with what callers heard, if anything.
async fn attack(
    world: &World,
    load: Load,
    fault: FlightFault,
    stalls: &Stalls,
) -> Result<String, String> {
    load.all_answered(Instant::now()).await;
    let (accepted, starved_before) = (world.accepted(), kit::busy_here());
    let mut trace = hit(world, fault, &world.label).await;
    let hit = trace.hit.expect("it was hit");
    let is_shift = !matches!(fault, FlightFault::Replace(..));
    while is_shift && trace.misfit.is_none() && hit.elapsed() < SILENCE {
        sleep(millis(5)).await;
        trace = world.proxies[0].fault_trace();
    }
    let seen = match trace.misfit {
        Some(misfit) => misfit,
        None if is_shift => hit + SILENCE,
        None => hit,
    };
    let deadline = seen + 2 * TIMEOUT + SLACK + (kit::busy_here() - starved_before);
    tokio::time::sleep_until((deadline + 3 * PAUSE).into()).await;
    // Everybody is served in the end, however slow the machine is.
    let end = Instant::now() + Duration::from_secs(30);
    while load.silent(deadline).is_some() && Instant::now() < end {
        sleep(PAUSE).await;
    }
    let silent = load.silent(deadline);
    let connections = world.accepted() - accepted;
    let records = load.end().await;
    if !is_shift && connections > 0 && stalls.longest().is_none() {
        return Err(format!(
            "{fault:?}: {connections} connections for an error of the server"
        ));
    }
    judge(&records, fault, stalls, (hit, deadline), silent).map(|failed| {
        let commands = trace.commands;
        let misfit = trace.misfit.map(|at| at - hit);
        format!(
            "{fault:?} of {commands}: misfit after {misfit:?}, {} of {} failed, the last {:?} after \
             the fault, {connections} connections",
            failed.len(),
            records.len(),
            failed.iter().max().map(|asked| asked.saturating_duration_since(hit)),
        )
    })
}

/// When those were asked that failed; or what must not be.
fn judge(
    records: &[Record],
    fault: FlightFault,
    stalls: &Stalls,
    (hit, deadline): (Instant, Instant),
    silent: Option<(Kind, u64)>,
) -> Result<Vec<Instant>, String> {
    let wrong: Vec<_> = records.iter().filter(|one| one.is_wrong()).collect();
    let failed: Vec<_> = records.iter().filter(|one| one.has_failed()).collect();
    let mut late = failed.clone();
    late.retain(|one| one.asked > deadline && !stalls.excuse(&one.lost(), 2 * TIMEOUT));
    if wrong.is_empty() && late.is_empty() && silent.is_none() {
        return Ok(failed.iter().map(|one| one.asked).collect());
    }
    let mut report = format!(
        "{fault:?}: of {} answers {} are another caller's; {} failed, {} of them later than {:?} \
         after the fault; then no answer: {silent:?}",
        records.len(),
        wrong.len(),
        failed.len(),
        late.len(),
        deadline - hit,
    );
    for (what, records) in [("another's", &wrong), ("late", &late)] {
        for one in records.iter().take(3) {
            let after = one.answered.saturating_duration_since(hit);
            let Record {
                kind,
                caller,
                trouble,
                ..
            } = one;
            report += &format!("\n  {what}: {kind:?} {caller} at {after:?}: {trouble:?}");
        }
    }
    Err(report)
}

/// All these kinds at once on one handle, and one fault after the other. The round trip is so long
/// that several flights are on their way.
async fn all_at_once(kinds: &[Kind], callers: u64, faults: &[FlightFault]) {
    let server = Server::start();
    let stalls = Stalls::watch(&[&server.url], millis(60)).await;
    let mut reports = Vec::new();
    for (at, &fault) in faults.iter().enumerate() {
        let play = async |name: String| {
            // A world of its own for each: what one has broken must not look as if another had.
            let world = Arc::new(World::new(&server, &name).await);
            world.proxies[0].delay(millis(1), millis(1));
            let load = Load::of_many(&world, kinds, callers);
            attack(&world, load, fault, &stalls).await
        };
        reports.push(unless_late(&at.to_string(), play).await);
    }
    check(reports);
}

/// Each of these groups on a handle of its own: a caller of each kind. Most flights have a single
/// question, so that one looks like the other.
async fn in_groups(groups: &[&[Kind]], faults: &[FlightFault]) {
    let load = |world: &Arc<World>, kinds: &[Kind]| Load::of_many(world, kinds, 1);
    side_by_side(groups, faults, load).await;
}

/// Each kind alone, on a handle of its own, one question at a time.
async fn one_by_one(kinds: &[Kind], faults: &[FlightFault]) {
    let groups: Vec<_> = kinds.chunks(1).collect();
    let load = |world: &Arc<World>, kinds: &[Kind]| Load::of_one(world, kinds[0]);
    side_by_side(&groups, faults, load).await;
}

async fn side_by_side(
    groups: &[&[Kind]],
    faults: &[FlightFault],
    load: impl Fn(&Arc<World>, &[Kind]) -> Load,
) {
    let server = Server::start();
    let stalls = Stalls::watch(&[&server.url], millis(60)).await;
    let (server, stalls, load) = (&server, &stalls, &load);
    let groups = groups.iter().enumerate().map(async |(group, &kinds)| {
        let mut reports = Vec::new();
        for (at, &fault) in faults.iter().enumerate() {
            let play = async |name: String| {
                let world = Arc::new(World::new(server, &name).await);
                attack(&world, load(&world, kinds), fault, stalls).await
            };
            let report = unless_late(&format!("{group}-{at}"), play).await;
            let of_kinds = |report| format!("{kinds:?}: {report}");
            reports.push(report.map(of_kinds).map_err(of_kinds));
        }
        reports
    });
    // More at once would only keep the processor busy.
    let reports = stream::iter(groups).buffer_unordered(5);
    check(reports.collect::<Vec<_>>().await.concat());
}

/// What comes late once may be the machine's fault, and is played again. What is another caller's is
/// not.
async fn unless_late(
    name: &str,
    play: impl AsyncFn(String) -> Result<String, String>,
) -> Result<String, String> {
    let report = play(format!("world-{name}")).await;
    match report {
        Err(report) if !report.contains("another's: ") => play(format!("again-{name}")).await,
        report => report,
    }
}

fn check(reports: Vec<Result<String, String>>) {
    let number = reports.len();
    let reports = reports
        .into_iter()
        .map(|report| report.map(|it| println!("{it}")));
    let broken: Vec<String> = reports.filter_map(Result::err).collect();
    let (failed, text) = (broken.len(), broken.join("\n"));
    assert!(broken.is_empty(), "{failed} of {number}:\n{text}");
}

/// Few callers, whose flights look alike.
const GROUPS: [&[Kind]; 10] = [
    &[Kind::UsedUp, Kind::Plenty],
    &[Kind::HeldLock, Kind::FreeLock],
    &[Kind::Available, Kind::RateOf],
    &[Kind::GiveBack, Kind::UsedUp],
    &[Kind::Look, Kind::Holds, Kind::Exists],
    &[Kind::Refund, Kind::Reset],
    &[Kind::Refund, Kind::UsedUp, Kind::HeldLock],
    &[Kind::Take, Kind::UsedUp],
    &[Kind::SpentTake, Kind::Take],
    &[Kind::FreeLock, Kind::Plenty, Kind::Peek],
];

fn extras(spot: Spot) -> [FlightFault; 6] {
    use Extra::{EarlierFlight, EarlierReply, Error, Integer, Nil, Time};
    let extras = [EarlierReply, EarlierFlight, Integer, Nil, Time, Error];
    extras.map(|extra| FlightFault::Add(extra, spot))
}

/// A test for each of these calls.
macro_rules! tests {
    ($($name:ident: $call:expr;)+) => {
        $(#[tokio::test]
        async fn $name() {
            $call.await;
        })+
    };
}
use tests;

tests! {
    a_flight_is_lost_under_callers_of_all_kinds: all_at_once(&Kind::all(), 2, &LOSSES);
    a_flight_is_lost_under_takes: all_at_once(&Kind::TAKES, 4, &LOSSES);
    a_flight_is_lost_under_limiters: all_at_once(&Kind::LIMITERS, 4, &LOSSES);
    a_flight_is_lost_under_locks: all_at_once(&Kind::LOCKS, 4, &LOSSES);
    a_flight_is_lost_under_few_callers: in_groups(&GROUPS, &LOSSES);
    a_reply_too_many_for_few_callers: in_groups(&GROUPS, &ADDITIONS);
    a_flight_is_lost_under_a_caller_alone: one_by_one(&Kind::all(), &LOSSES);
    a_reply_too_many_before_a_flight: all_at_once(&Kind::all(), 2, &extras(Spot::Before));
    a_reply_too_many_within_a_flight: all_at_once(&Kind::all(), 2, &extras(Spot::Within));
    a_reply_too_many_after_a_flight: all_at_once(&Kind::all(), 2, &extras(Spot::After));
    a_reply_too_many_for_a_caller_alone: one_by_one(&Kind::all(), &ADDITIONS);
    a_flight_is_refused_under_callers_of_all_kinds: all_at_once(&Kind::all(), 2, &REFUSALS);
    a_flight_is_refused_under_few_callers: in_groups(&GROUPS, &REFUSALS);
}

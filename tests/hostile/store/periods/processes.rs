//! Four processes whose clocks are off by up to an hour, beside that of Redis, take from one budget
//! over the end of a period.

use kit::workers::{lines_of, worker_command};
use tidegate::layer::Crossing;

use super::*;

const WORKER: &str = "periods::processes::worker_takes_from_a_budget";
/// How far the processes' clocks are ahead of the server's, in minutes.
const MINUTES: [i8; 4] = [-60, -30, 0, 60];

/// How far the clock of this process is ahead of its machine's, in microseconds.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// By the machine's clock.
fn true_micros() -> u64 {
    kit::unix_micros().wrapping_sub(AHEAD.load(Ordering::Relaxed))
}

/// Plays one process: takes and refunds in the store, and requests of one more key through limits
/// that tell of crossings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by another test"]
async fn worker_takes_from_a_budget() {
    let Some(words) = instructions() else { return };
    let [ahead, seed, until] = numbers(&words);
    AHEAD.store(ahead, Ordering::Relaxed);
    let off = until.abs_diff(true_micros());
    assert!(
        off < 60 * MILLION + more_seconds() * MILLION,
        "it has another clock: {off}"
    );
    let until = Instant::now() + Duration::from_micros(until.saturating_sub(true_micros()));
    let store = connect(&words[0], PATIENT).await;
    let rule = budget(&Period::DAY);
    let seeds = 100 * seed..100 * seed + 3;
    let callers = Caller::spawn_each((&store, &rule), seeds, true_micros, until);
    let limits = Limits::new([Rule::clone(&rule)]).store(store.timeout(PATIENT));
    let limits = limits.on_crossing([0.5, 1.0], async |crossing: Crossing| {
        let end = crossing.until.duration_since(std::time::UNIX_EPOCH);
        let end = micros(end.expect("later"));
        println!("\ntold {end} {}", (crossing.share * 100.0) as u64);
    });
    let mut allowed = 0;
    while Instant::now() < until {
        let answer = limits.check("budget", Key::from("watched")).await;
        allowed += u64::from(answer.is_ok());
        sleep(millis(5)).await;
    }
    for answer in kit::done(callers).await.concat() {
        println!("\n{}", answer.line());
    }
    println!("\nwatched {allowed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_whose_clocks_are_off_share_a_budget() {
    let Some(clock) = FakeClock::find_for_redis() else {
        return;
    };
    let server = Redis::start_by(&clock, &[]);
    // Midnight, at the end of November 2026.
    let end = 1_796_083_200 * MILLION;
    // Processes have to start first.
    let lasts = 5_000_000 + more_seconds() * MILLION;
    let (ahead, until) = (ahead_of(end - lasts / 2), kit::unix_micros() + lasts);
    clock.set(ahead);
    let workers = MINUTES.into_iter().zip(0..).map(|(minutes, seed)| {
        let clock = FakeClock::find().expect("it is there");
        let ahead = ahead + 60.0 * f64::from(minutes);
        clock.set(ahead);
        let ahead = (ahead * MILLION as f64) as i64 as u64;
        let words = format!("{} {ahead} {seed} {until}", server.url);
        let mut command = worker_command(WORKER, &words);
        let command = command.envs(clock.environment()).stdout(Stdio::piped());
        (command.spawn().expect("this test starts"), clock)
    });
    let (workers, _clocks): (Vec<_>, Vec<_>) = workers.unzip();
    let outputs = tokio::task::spawn_blocking(|| outputs(workers)).await;
    let outputs = outputs.expect("no panic");

    let answers = lines_of(&outputs, Answer::WORD).map(|line| Answer::of(&line));
    let history = History {
        period: Period::DAY,
        clocks: vec![Clock::new(ahead)],
        answers: answers.collect(),
    };
    let (store, rule) = (connect(&server.url, PATIENT).await, budget(&Period::DAY));
    history.check(&store, &rule, "four processes").await;
    let ends: BTreeSet<_> = history.of(What::Allowed).map(|it| it.end).collect();
    let day = 86_400 * MILLION;
    assert_eq!(Vec::from_iter(ends), [end, end + day]);

    // One key is used up in each period, and each crossing is told once.
    let mut told: Vec<_> = lines_of(&outputs, "told").collect();
    told.sort();
    let both = [end, end + day].map(|end| [vec![end, 50], vec![end, 100]]);
    assert_eq!(told, both.concat());
    assert_eq!(sum(&outputs, "watched "), 2 * MAX);
}

//! A replica whose clock is off takes over, shortly before or behind the end of a period.

use super::*;

/// How far the replica's clock is ahead of the master's, in seconds.
const OFF: [f64; 4] = [2.0, -2.0, 2.0 * HOUR_SECONDS, -2.0 * HOUR_SECONDS];

struct Pair {
    master: Redis,
    replica: Redis,
    proxy: Proxy,
}

impl Pair {
    async fn start([master, replica]: [&FakeClock; 2]) -> Self {
        let alone = ["--repl-diskless-sync-delay", "0"];
        let master = Redis::start_by(master, &alone);
        let replica = Redis::start_by(replica, &alone);
        replica.follow(&master.url);
        let is_up = async || {
            let info: String = replica.run("INFO replication");
            info.contains("master_link_status:up")
        };
        kit::eventually("the replica follows", is_up).await;
        let proxy = Proxy::start(&master.url).await;
        Self {
            master,
            replica,
            proxy,
        }
    }

    /// All that the master has answered is on the replica, when the master dies.
    async fn fail_over(&mut self) {
        self.proxy.refuse().await;
        self.proxy.present(Mode::Hold);
        sleep(millis(50)).await;
        let mut admin = self.master.connection();
        let () = admin.set("last", 1).expect("is written");
        let wait = cmd("WAIT").arg(1).arg(10_000).query::<u64>(&mut admin);
        assert_eq!(wait.expect("an answer"), 1);
        self.master.kill();
        run(&self.replica, "REPLICAOF NO ONE");
        self.proxy.lead_to(&self.replica.url);
        self.proxy.present(Mode::Reset);
        self.proxy.accept_again().await;
    }
}

async fn history(period: Period, off: f64, is_before_the_end: bool, seed: u64) {
    let case = format!("{period}, {off} s off, before the end: {is_before_the_end}");
    let [Some(clock), Some(replicas)] = [FakeClock::find(), FakeClock::find()] else {
        unreachable!("they were found before");
    };
    // The end of November 2026.
    let around = std::time::UNIX_EPOCH + Duration::from_secs(1_796_000_000);
    let end = period.around(around).end;
    let end = micros(end.duration_since(std::time::UNIX_EPOCH).expect("later"));
    clock.set(0.0);
    let mut pair = Pair::start([&clock, &replicas]).await;
    let ahead = ahead_of(end - 1_800_000);
    clock.set(ahead);
    replicas.set(ahead + off);
    let store = connect(&pair.proxy.url, PATIENT).await;
    let rule = budget(&period);
    let until = Instant::now() + millis(5_000);
    let callers = Caller::spawn_each((&store, &rule), seed..seed + 3, kit::unix_micros, until);
    sleep(millis(if is_before_the_end { 1_000 } else { 2_600 })).await;
    let mut clocks = [Clock::new(ahead), Clock::new(ahead + off)];
    let before = kit::unix_micros();
    pair.fail_over().await;
    clocks[0].until = kit::unix_micros();
    clocks[1].from = before;
    let answers = kit::done(callers).await.concat();
    let history = History {
        period,
        clocks: clocks.into(),
        answers,
    };
    history.check(&store, &rule, &case).await;
    let behind = |it: &&Answer| it.asked > clocks[0].until;
    let decided = history.of(What::Allowed).filter(behind).count();
    assert!(decided > 0, "{case}: nothing is decided behind it");
    let is_refilled = history.charged().keys().any(|(_, it)| *it != end);
    assert!(is_refilled || off < -2.0, "{case}: no period has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_clock_is_off_takes_over() {
    if FakeClock::find_for_redis().is_none() {
        return;
    }
    let berlin = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
    for round in 0..=more_seconds() / 6 {
        let cases = OFF.map(|off| [(off, true), (off, false)]).concat();
        let histories = cases.into_iter().zip(0..).map(|((off, is_before), at)| {
            let period = match (round + at / 2) % 2 == 0 {
                true => &Period::DAY,
                false => &berlin,
            };
            history(period.clone(), off, is_before, 100 * round + 10 * at)
        });
        join_all(histories).await;
    }
}

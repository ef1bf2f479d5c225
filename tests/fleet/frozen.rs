//! Processes that are frozen between requests, as functions are, before a network that forgets
//! meanwhile what is idle: each request is decided, and none is charged twice.
//!
//! A signal freezes them for longer than networks remember; `TIDEGATE_FROZEN` says how often: the
//! eight times of `tests/nightly.sh`, and `TIDEGATE_TIMEOUT` the time-out in milliseconds. Where
//! libfaketime is installed, steps of the real-time clock freeze them, too, as hosts do whose
//! guests' monotonic clocks stand.

use std::io::BufRead;

use kit::certificates::Certificates;
use kit::cluster::Plan;
use kit::sentinels::{NAME, Sentinels};
use kit::workers::worker_command;
use tidegate::Redis as Handle;
use tidegate::redis::RedisAddress;

use crate::process::Process;
use crate::*;

/// A connection whose last reply is older than 30 s is not relied on.
const FREEZE: Duration = Duration::from_secs(31);
const MAX: u64 = 1_000_000;

/// Plays one process: it is asked for everything that goes to Redis, each time in another order,
/// and says how many microseconds the first took, or what it did not get. At the end it says how
/// often it was charged, and what is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by other tests"]
async fn worker_is_asked() {
    let Some(words) = instructions() else { return };
    let [url, authority, name, ports @ ..] = &*words else {
        panic!("{words:?}");
    };
    let ports = ports.iter().map(|pair| {
        let (named, reached) = pair.split_once('=').expect("two ports");
        [named, reached].map(|port| port.parse().expect("a port"))
    });
    let ports: HashMap<u16, u16> = ports.map(Into::into).collect();
    let mut address = RedisAddress::from_url(url).expect("a valid address");
    if authority != "-" {
        let authority = std::fs::read(authority).expect("a file");
        address = address.authority(authority).expect("a certificate");
    }
    let address = address.resolve(move |host, port| {
        let reached = ports.get(&port).copied().unwrap_or(port);
        (host.to_owned(), reached)
    });
    let redis = Handle::connect_lazy(address).expect("a valid address");
    // Silence is noticed after a second, which is too late.
    let timeout = kit::millis(from_env("TIDEGATE_TIMEOUT", 900));
    let redis = redis.timeout(timeout);
    let store = RedisStore::of(&redis).timeout(timeout);
    let take = kit::load::take(name, MAX);
    let limiter = RateLimiter::new(&redis, format!("limiter-{name}"));
    let mut receipts = Vec::new();
    for (event, line) in std::io::stdin().lock().lines().enumerate() {
        let began = Instant::now();
        let mut took = None;
        let outcome = async {
            match &*line.expect("text") {
                // All nodes are reached.
                "ready" => {
                    store.ready(PATIENT).await?;
                    let _ = limiter.try_set_rate(overall(MAX, HOUR)).await?;
                    return Ok(());
                }
                "take" => return store.take(&take).await.map(drop).map_err(Into::into),
                _ => {}
            }
            for at in 0..4 {
                match (event + at) % 4 {
                    0 => receipts.extend(store.take(&take).await?.receipt()),
                    1 if receipts.is_empty() => drop(store.peek(&take).await?),
                    1 => {
                        let receipt = receipts.pop().expect("there is one");
                        assert_eq!(store.refund(&take, &receipt).await?, 1, "what was charged");
                    }
                    2 => assert!(limiter.try_acquire(1).await?),
                    _ => {
                        let lock = Lock::new(&redis, &format!("lock-{name}"));
                        frees(lock.try_lock().await?.expect("it is free")).await;
                    }
                }
                took.get_or_insert(began.elapsed());
            }
            Ok::<_, Box<dyn std::error::Error>>(())
        };
        match outcome.await {
            Ok(()) => println!("\nasked {}", took.unwrap_or_default().as_micros()),
            Err(error) => println!("\nlost {error} after {:?}", began.elapsed()),
        }
    }
    let peek = store.peek(&take).await.expect("an answer");
    let acquired = MAX - limiter.available_permits().await.expect("an answer");
    let used = MAX - peek.remaining();
    println!(
        "\ncharged {}\nused {used}\nacquired {acquired}",
        receipts.len()
    );
}

/// What is between a process and its servers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Network {
    Plain,
    Tls,
    /// 5 ms away, there and back.
    Distant,
    Cluster,
    Sentinels,
}

const NETWORKS: [Network; 5] = [
    Network::Plain,
    Network::Tls,
    Network::Distant,
    Network::Cluster,
    Network::Sentinels,
];

/// What becomes of connections while a process is frozen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    ForgottenEach,
    ForgottenOnce,
    Closed,
    /// This process is a control: it runs.
    Kept,
}

struct Servers {
    certificates: Certificates,
    /// It is at the second port by TLS.
    plain: Redis,
    tls: String,
    cluster: Cluster,
    sentinels: Sentinels,
}

impl Servers {
    fn start() -> Self {
        let certificates = Certificates::make();
        let (plain, tls) = certificates.server("good", "authority", "no");
        Self {
            certificates,
            plain,
            tls,
            cluster: Cluster::start(&Plan::default()),
            sentinels: Sentinels::start(),
        }
    }

    /// Proxies of a process before all servers of this network, and its first instructions.
    async fn proxied(&self, network: Network, name: &str) -> (Vec<Proxy>, String) {
        let Sentinels { servers, sentinels } = &self.sentinels;
        let named: Vec<_> = match network {
            Network::Plain | Network::Distant => vec![self.plain.url.clone()],
            Network::Tls => vec![self.tls.clone()],
            Network::Cluster => self.cluster.nodes.iter().map(|it| it.url()).collect(),
            Network::Sentinels => sentinels.iter().chain(servers).map(|it| it.url()).collect(),
        };
        let proxies = join_all(named.iter().map(|url| Proxy::start(url))).await;
        if network == Network::Distant {
            // Timers fire with the next millisecond.
            proxies[0].delay(kit::millis(2), kit::millis(2));
        }
        let reached = proxies.iter().map(|it| it.url.replace("redis://", ""));
        let reached: Vec<_> = reached.collect();
        let (url, authority) = match network {
            Network::Plain | Network::Distant => (proxies[0].url.clone(), "-".to_owned()),
            Network::Tls => {
                let authority = self.certificates.path("authority.crt");
                (format!("rediss://{}", reached[0]), authority)
            }
            Network::Cluster => (
                format!("redis-cluster://{}", reached.join(",")),
                "-".to_owned(),
            ),
            Network::Sentinels => {
                let sentinels = reached[..sentinels.len()].join(",");
                (
                    format!("redis-sentinel://{sentinels}/{NAME}"),
                    "-".to_owned(),
                )
            }
        };
        let port = |url: &str| url.rsplit_once(':').expect("a port").1.to_owned();
        let pairs = named.iter().zip(&reached);
        let pairs = pairs.map(|(named, reached)| format!(" {}={}", port(named), port(reached)));
        let pairs: String = pairs.collect();
        (proxies, format!("{url} {authority} {name}{pairs}"))
    }
}

/// A process with a network of its own.
struct World {
    process: Process<String>,
    fate: Fate,
    proxies: Vec<Proxy>,
    /// How long the first answer of each event took.
    took: Vec<u64>,
    lost: Vec<String>,
}

impl World {
    /// It is ready, and was asked once.
    async fn start(
        servers: &Servers,
        network: Network,
        fate: Fate,
        clock: Option<&FakeClock>,
    ) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let who = format!(
            "{network:?}-{fate:?}-{}",
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let (proxies, words) = servers.proxied(network, &who).await;
        let mut command = worker_command("frozen::worker_is_asked", &words);
        let environment = clock.map_or_else(Vec::new, FakeClock::environment);
        let command = command.envs(environment).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).spawn();
        let mut world = Self {
            process: Process::of(who, child.expect("this test starts")),
            fate,
            proxies,
            took: Vec::new(),
            lost: Vec::new(),
        };
        assert!(world.says("ready").starts_with("asked "));
        world.ask();
        assert!(world.lost.is_empty(), "{:?}", world.lost);
        world
    }

    fn says(&mut self, line: &str) -> String {
        self.process.tell(line);
        let said = |line: &str| line.starts_with("asked ") || line.starts_with("lost ");
        tokio::task::block_in_place(|| self.process.line(said))
    }

    fn ask(&mut self) {
        let said = self.says("all");
        match said.strip_prefix("asked ") {
            Some(took) => self.took.push(took.parse().expect("a number")),
            None => self.lost.push(said),
        }
    }

    /// What its network does in this freeze.
    fn forget(&self, number: usize) {
        let mode = match (self.fate, number) {
            (Fate::ForgottenEach, _) | (Fate::ForgottenOnce, 0) => Mode::BlackHole,
            (Fate::Closed, _) => Mode::CloseIdle(Duration::ZERO),
            (Fate::ForgottenOnce | Fate::Kept, _) => return,
        };
        self.proxies.iter().for_each(|proxy| proxy.present(mode));
    }

    fn thaw(&self) {
        if self.fate != Fate::Kept {
            self.process.signal("CONT");
        }
    }

    fn accepted(&self) -> usize {
        self.proxies.iter().map(Proxy::accepted).sum()
    }

    /// What was lost, in the end. Without a loss all was charged once.
    fn end(self) -> Vec<String> {
        let Self {
            process,
            took,
            lost,
            ..
        } = self;
        println!("{}: us {took:?}, lost {lost:?}", process.who);
        let said = tokio::task::block_in_place(|| process.rest()).join("\n");
        let number = |word| number(&said, word);
        if lost.is_empty() {
            assert_eq!(number("used "), number("charged "), "{said}");
            assert_eq!(number("acquired "), took.len() as u64, "{said}");
        }
        lost
    }
}

const FATES: [Fate; 3] = [Fate::ForgottenEach, Fate::ForgottenOnce, Fate::Closed];

/// A process for each network and fate, with a control for each network.
async fn worlds(servers: &Servers, clock: Option<&FakeClock>) -> Vec<World> {
    let mut worlds = Vec::new();
    for network in NETWORKS {
        for fate in FATES {
            worlds.push(World::start(servers, network, fate, clock).await);
        }
        worlds.push(World::start(servers, network, Fate::Kept, None).await);
    }
    worlds
}

/// All are asked after each freeze, one after the other. A control whose connection is well opens
/// no other, and where controls lose nothing, nobody does.
async fn check(mut worlds: Vec<World>, freezes: usize, freeze: impl AsyncFn(&mut [World])) {
    let kept = |worlds: &[World]| {
        let kept = worlds.iter().filter(|it| it.fate == Fate::Kept);
        kept.map(World::accepted).sum::<usize>()
    };
    let before = kept(&worlds);
    for number in 0..freezes {
        worlds.iter().for_each(|it| it.forget(number));
        freeze(&mut worlds).await;
        let _machine = MACHINE.lock().await;
        for world in &mut worlds {
            world.thaw();
            world.ask();
        }
    }
    let more = kept(&worlds) - before;
    let (controls, frozen): (Vec<_>, Vec<_>) =
        worlds.into_iter().partition(|it| it.fate == Fate::Kept);
    // Only a reply that takes long has another connection made, behind sentinels up to four.
    let slow = controls.iter().map(|it| {
        let took = it.took.iter().filter(|took| **took > 10_000);
        it.lost.len() + took.count()
    });
    let slow: usize = slow.sum();
    let lost = |worlds: Vec<World>| worlds.into_iter().flat_map(World::end).collect::<Vec<_>>();
    let (of_controls, of_frozen) = (lost(controls), lost(frozen));
    println!("connections of controls: {more} more, {slow} slow answers");
    if of_controls.is_empty() {
        assert_eq!(of_frozen, [""; 0]);
    }
    assert!(more <= 4 * slow, "{more} of {slow}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_a_signal() {
    let servers = Servers::start();
    let worlds = worlds(&servers, None).await;
    check(worlds, from_env("TIDEGATE_FROZEN", 2), async |worlds| {
        let frozen = worlds.iter_mut().filter(|it| it.fate != Fate::Kept);
        frozen.for_each(|it| it.process.signal("STOP"));
        sleep(FREEZE).await;
    })
    .await;
}

/// So it is where the monotonic clock stands meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_real_time_clock() {
    let Some(clock) = FakeClock::find() else {
        return println!("skipped: libfaketime is not installed");
    };
    let servers = Servers::start();
    let worlds = worlds(&servers, Some(&clock)).await;
    let ahead = AtomicU64::new(0);
    check(worlds, 8, async |_| {
        let ahead = FREEZE.as_secs() + ahead.fetch_add(FREEZE.as_secs(), Ordering::Relaxed);
        clock.set(ahead as f64);
    })
    .await;
}

/// A connection that a frozen process was about to make is dropped, and what it knew of a server
/// that was away is not true any more. There the monotonic clock stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_connects() {
    let Some(clock) = FakeClock::find() else {
        return println!("skipped: libfaketime is not installed");
    };
    let servers = Servers::start();
    let mut world = World::start(&servers, Network::Plain, Fate::Kept, Some(&clock)).await;
    let mut ahead = 0.0;
    for is_refused in [false, true, false] {
        match is_refused {
            true => {
                world.proxies[0].present(Mode::Reset);
                world.proxies[0].refuse().await;
            }
            false => {
                world.proxies[0].all(Mode::Hold);
                world.proxies[0].present(Mode::Reset);
            }
        }
        sleep(kit::millis(20)).await;
        assert!(world.says("take").starts_with("lost "), "nobody answers");
        match is_refused {
            true => world.proxies[0].accept_again().await,
            false => {
                world.proxies[0].all(Mode::Pass);
                world.proxies[0].fall_silent();
            }
        }
        ahead += FREEZE.as_secs_f64();
        clock.set(ahead);
        let said = world.says("take");
        assert!(said.starts_with("asked "), "{is_refused}: {said}");
    }
}

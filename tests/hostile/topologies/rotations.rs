//! Passwords that change under load: 200 takes a second, while users come and go.

use kit::load::{HICCUP, TIMEOUT, take};
use kit::process::Process;
use tidegate::redis::{Credentials, RedisAddress};
use tokio::time::interval;

use crate::prelude::*;

/// From one change to the next, and how many there are.
fn plan() -> (Duration, usize) {
    let seconds = from_env("TIDEGATE_ROTATION_SECONDS", 3);
    (seconds * SECOND, from_env("TIDEGATE_ROTATIONS", 3))
}

/// The servers of one topology.
struct Place<'a> {
    name: &'static str,
    url: String,
    /// Those that hold data.
    servers: Vec<&'a Process>,
    sentinels: Vec<&'a Process>,
}

const RIGHTS: &str = "~* &* +@all";

impl Place<'_> {
    fn all(&self, command: &str) {
        let all = self.servers.iter().chain(&self.sentinels);
        all.for_each(|server| server.run::<()>(command));
    }

    /// The connections of users whose names begin like this.
    fn connections(&self, user: &str) -> HashSet<(u16, String)> {
        let user = format!(" user={user}");
        let lines = self.servers.iter().flat_map(|server| {
            let list: String = server.run("CLIENT LIST TYPE normal");
            let port = server.port;
            list.lines()
                .map(|line| (port, line.to_owned()))
                .collect::<Vec<_>>()
        });
        let ours = lines.filter(|(_, line)| line.contains(&user));
        let id = |line: String| line.split(' ').next().expect("an id").to_owned();
        ours.map(|(port, line)| (port, id(line))).collect()
    }
}

/// What a closure answers by now, and how often it was asked.
#[derive(Clone)]
struct Now(Arc<Mutex<Credentials>>, Arc<AtomicUsize>);

impl Now {
    fn new(credentials: Credentials) -> Self {
        Self(Arc::new(Mutex::new(credentials)), Arc::default())
    }

    fn asked(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }

    fn set(&self, credentials: Credentials) {
        *self.0.lock().expect("no panic") = credentials;
    }

    async fn ask(self) -> Result<Credentials, Infallible> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn address(&self, url: &str) -> RedisAddress {
        let (data, sentinel) = (self.clone(), self.clone());
        let address = RedisAddress::from_url(url).expect("a valid address");
        let address = address.credentials(move || data.clone().ask());
        address.sentinel_credentials(move || sentinel.clone().ask())
    }
}

struct Answer {
    asked: Instant,
    answered: Instant,
    lost: Option<Lost>,
}

/// Asks 200 times a second, of keys in all slots.
async fn ask_steadily(store: RedisStore, until: Instant) -> Vec<Answer> {
    let (mut ticks, mut asked) = (interval(millis(5)), JoinSet::new());
    for number in 0.. {
        ticks.tick().await;
        if Instant::now() > until {
            break;
        }
        let (store, take) = (store.clone(), take(&format!("p{}", number % 32), 1_000_000));
        asked.spawn(async move {
            let asked = Instant::now();
            let failed = store.take(&take).await.err();
            Answer {
                asked,
                answered: Instant::now(),
                lost: failed.map(|error| Lost::since(asked, error)),
            }
        });
    }
    asked.join_all().await
}

async fn store_at(place: &Place<'_>, now: &Now) -> RedisStore {
    let store = RedisStore::connect(now.address(&place.url)).await;
    // A busy machine delays more than a password: only what fails at once is lost here.
    let store = store.expect("it may").timeout(PATIENT);
    store.ready(PATIENT).await.expect("all nodes decide");
    store
}

fn row(place: &Place<'_>, what: &str, answers: &[Answer], asked: usize) {
    let lost = answers.iter().filter(|it| it.lost.is_some()).count();
    let took = answers.iter().map(|answer| answer.answered - answer.asked);
    let late = took.clone().filter(|took| *took > TIMEOUT).count();
    let slowest = took.max().unwrap_or_default().as_millis();
    let (name, takes) = (place.name, answers.len());
    println!("| {name} | {what} | {takes} | {lost} | {late} | {slowest} ms | {asked} |");
}

/// Each user is deleted some time after the next one has come, and the server ends what is left of
/// its connections. They log in as the next one by then, and nothing is lost.
async fn users_that_end(place: &Place<'_>, stalls: &Stalls) {
    let (period, changes) = plan();
    let user = |number: usize| (format!("token-{number}"), format!("secret-{number}"));
    let add = |number| {
        let (user, password) = user(number);
        place.all(&format!("ACL SETUSER {user} on >{password} {RIGHTS}"));
        let until = Instant::now() + 2 * period;
        Credentials::new(password).username(user).until(until)
    };
    let now = Now::new(add(0));
    let store = store_at(place, &now).await;
    let before = place.connections("token-");
    assert!(!before.is_empty());
    let until = Instant::now() + period * u32::try_from(changes + 1).expect("few");
    let load = tokio::spawn(ask_steadily(store.clone(), until));
    for number in 1..=changes {
        tokio::time::sleep(period).await;
        if number > 1 {
            let (old, _) = user(number - 2);
            place.all(&format!("ACL DELUSER {old}"));
        }
        now.set(add(number));
    }
    let answers = load.await.expect("no panic");
    row(place, "users that end, `until`", &answers, now.asked());
    let lost = answers.iter().filter_map(|it| it.lost.as_ref());
    let (excused, lost): (Vec<_>, Vec<_>) = lost.partition(|it| stalls.excuse(it, TIMEOUT));
    assert!(lost.is_empty(), "{}: {lost:?}", place.name);
    let after = place.connections("token-");
    let is_kept = before.is_subset(&after) || !excused.is_empty();
    assert!(is_kept, "{}: other connections", place.name);
}

/// The password of one user changes, and the server ends its connections.
async fn passwords_that_change(place: &Place<'_>, stalls: &Stalls) {
    let (period, changes) = plan();
    let set = |number: usize| {
        let password = format!("secret-{number}");
        place.all(&format!(
            "ACL SETUSER gate on resetpass >{password} {RIGHTS}"
        ));
        Credentials::new(password).username("gate")
    };
    let now = Now::new(set(0));
    let store = store_at(place, &now).await;
    let until = Instant::now() + period * u32::try_from(changes + 1).expect("few");
    let load = tokio::spawn(ask_steadily(store.clone(), until));
    let mut ends = Vec::new();
    for number in 1..=changes {
        // Not at fixed times: after a stall, two changes at once would find no connection to end.
        tokio::time::sleep(period).await;
        now.set(set(number));
        ends.push(Instant::now());
        let all = place.servers.iter().chain(&place.sentinels);
        let ended = all.map(|server| server.run::<usize>("CLIENT KILL USER gate"));
        assert_ne!(ended.sum::<usize>(), 0, "{}", place.name);
    }
    let answers = load.await.expect("no panic");
    let what = "a password that changes, connections ended";
    row(place, what, &answers, now.asked());
    // How long after the end of the connections a lost one was asked.
    let late = |lost: &Lost| {
        let before = ends.iter().rfind(|end| **end <= lost.answered);
        before.map(|end| lost.asked.saturating_duration_since(*end))
    };
    let lost: Vec<_> = answers.iter().filter_map(|it| it.lost.as_ref()).collect();
    for it in &lost {
        let is_near = late(it).is_some_and(|late| late < TIMEOUT + HICCUP);
        assert!(
            is_near || stalls.excuse(it, TIMEOUT),
            "{}: {it:?}",
            place.name
        );
    }
    let last = lost.iter().filter_map(|it| late(it)).max();
    println!(
        "{}: the last was lost {last:?} after the end of the connections",
        place.name
    );
    // At 200 a second, no more than a time-out's worth of each.
    assert!(lost.len() < changes * 200, "{}: {}", place.name, lost.len());
}

/// What is slow without any password, on the same servers.
async fn control(place: &Place<'_>) {
    let store = RedisStore::connect(&place.url).await.expect("it may");
    let (period, changes) = plan();
    let until = Instant::now() + period * u32::try_from(changes + 1).expect("few");
    let answers = ask_steadily(store.timeout(PATIENT), until).await;
    row(place, "control", &answers, 0);
}

async fn all(place: &Place<'_>) {
    let urls: Vec<_> = place.servers.iter().map(|server| server.url()).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let stalls = &Stalls::watch(&urls, millis(100)).await;
    let users = users_that_end(place, stalls);
    tokio::join!(users, passwords_that_change(place, stalls), control(place));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_server() {
    let server = Process::start(&["--save", ""]);
    let place = Place {
        name: "one server",
        url: server.url(),
        servers: vec![&server],
        sentinels: vec![],
    };
    all(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let place = Place {
        name: "a cluster",
        url: cluster.url(),
        servers: cluster.nodes.iter().collect(),
        sentinels: vec![],
    };
    all(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_master_and_its_sentinels() {
    let redis = Sentinels::start();
    let place = Place {
        name: "behind sentinels",
        url: redis.url(),
        servers: redis.servers.iter().collect(),
        sentinels: redis.sentinels.iter().collect(),
    };
    all(&place).await;
}

//! The ACL lines of `docs/security.md`: they are enough, and nothing of them is too much.

mod topologies;

use kit::clocked::by;
use kit::http::status;
use redis::{Connection, FromRedisValue, Value};
use tidegate::store::{OperatorKey, OperatorKind, ProcessReport};

use crate::prelude::*;

const PAGE: &str = include_str!("../../../docs/security.md");

/// The words of the line for this user, behind `ACL`.
fn line(user: &str) -> Vec<String> {
    block(user, "on ")
}

/// The words of the block that begins so. `takes` is a service without a name.
fn block(user: &str, begin: &str) -> Vec<String> {
    let written = if user == "takes" { "shop" } else { user };
    let at = PAGE.find(&format!("ACL SETUSER {written} {begin}"));
    let (line, _) = PAGE[at.expect("the page has such a line")..]
        .split_once("```")
        .expect("the block ends");
    let words = line.split_whitespace().skip(1);
    let of_user = words.map(|word| match word {
        "shop" => user.to_owned(),
        word if user == "takes" => word.replace("shop:", "CurrentLimiter:"),
        word => word.to_owned(),
    });
    of_user.collect()
}

fn commands(line: &[String]) -> Vec<&str> {
    let commands = line.iter().filter_map(|word| word.strip_prefix('+'));
    commands.collect()
}

fn acl<T: FromRedisValue>(admin: &mut Connection, words: &[impl AsRef<str>]) -> T {
    let mut command = cmd("ACL");
    for word in words {
        command.arg(word.as_ref());
    }
    command.query(admin).expect("an administrator may do that")
}

/// What the server has refused since it was last forgotten, without what is optional.
fn refused(admin: &mut Connection) -> BTreeSet<String> {
    let entries: Vec<Value> = acl(admin, &["LOG"]);
    let object = |entry: Value| {
        let fields: Vec<(String, Value)> = redis::from_redis_value(entry).expect("pairs");
        let object = fields.into_iter().find(|(name, _)| name == "object");
        redis::from_redis_value::<String>(object.expect("what was refused").1).expect("text")
    };
    let objects = entries.into_iter().map(object);
    objects.filter(|object| object != "info").collect()
}

/// A line without one of its words.
fn without(line: &[String], left_out: &str) -> Vec<String> {
    let words = line.iter().filter(|word| *word != left_out);
    words.cloned().collect()
}

fn with_user(url: &str, user: &str) -> String {
    url.replace("//", &format!("//{user}:PASSWORD@"))
}

fn url(server: &Server, user: &str) -> String {
    with_user(&server.url, user)
}

type Broken = Box<dyn Error>;

/// A law that does not hold here.
macro_rules! ensure {
    ($condition:expr) => {
        if !$condition {
            return Err(stringify!($condition).into());
        }
    };
}

/// All that a store can be asked. It fails at the first thing that does not work.
async fn use_takes(server: &Server) -> Result<(), Broken> {
    all_takes(&url(server, "takes"), &mut server.connection()).await
}

/// The same under the name of a service.
async fn use_takes_of_a_service(server: &Server) -> Result<(), Broken> {
    let url = url(server, "shop");
    let store = Resilient::redis(url.as_str(), "shop")?.timeout(PATIENT);
    let store = store.connect().await?;
    for prefix in [None, Some("own:")] {
        let rule = per_hour("p", 3);
        let rule = prefix
            .into_iter()
            .fold(rule, |rule, it| rule.with_prefix(it));
        let take = take(&Arc::new(rule), "a");
        let receipt = store.take(&take).await?.receipt();
        let receipt = receipt.ok_or("it was charged")?;
        ensure!(store.refund(&take, &receipt).await? == 1);
        store.reset(&take).await?;
    }
    let store = RedisStore::connect(&url).await?.timeout(PATIENT);
    let store = store.prefix("shop:CurrentLimiter:");
    takes_on(store, &mut server.connection()).await
}

async fn all_takes(url: &str, admin: &mut Connection) -> Result<(), Broken> {
    let store = RedisStore::connect(url).await?.timeout(PATIENT);
    takes_on(store, admin).await
}

/// Requests run one at a time, and one waits for the other.
async fn take_turns(store: &RedisStore) -> Result<(), Broken> {
    let one = Policy::concurrent(1);
    let subjects = [
        Subject::new("all", Everyone).limit(Quota::per_hour(9)),
        Subject::new("any", Everyone).limit(one.clone()),
    ];
    let rules = [
        Rule::with_policies("alone", [one])?,
        Rule::joint("joint", subjects)?,
    ];
    for rule in rules {
        let path = rule.path().to_owned();
        let rule = rule.with_permit_lease(SECOND)?;
        let limits = Limits::new([rule]).store(store.clone());
        // A third of the lease passes meanwhile.
        let handler = get(async || sleep(millis(500)).await);
        let handler = handler.layer(limits.layer(&path).wait(PATIENT));
        let app = Router::new().route("/", handler);
        let (one, other) = tokio::join!(status(&app, "/"), status(&app, "/"));
        ensure!(one.is_success() && other.is_success());
    }
    // The subscriber tells the server that nobody listens any more.
    sleep(millis(300)).await;
    Ok(())
}

/// What the processes of a service tell each other.
async fn talk(store: &RedisStore) -> Result<(), Broken> {
    let fleet = store.fleet().ok_or("there is a fleet")?;
    let key = |kind, seconds| OperatorKey {
        kind,
        path: "p".into(),
        key: "a".into(),
        by: Some("operator".into()),
        note: Some("why".into()),
        only: [].into(),
        replaces: false,
        time: Duration::from_secs(seconds),
    };
    let is_set = async |kind, seconds| {
        let stands = fleet.set_key(&key(kind, seconds)).await;
        stands.map(|it| it.is_some())
    };
    ensure!(is_set(OperatorKind::LetThrough, 60).await?);
    let report = |known_version| ProcessReport {
        process: "0123456789abcdef".into(),
        text: "{}".into(),
        known_version,
        random: [7; 16],
        decides: true,
    };
    let state = fleet.report(&report(0)).await?;
    let list = state.keys.ok_or("the list is new")?;
    ensure!(list.len() == 1 && *list[0].path == *"p" && *list[0].key == *"a");
    let again = fleet.report(&report(state.version)).await?;
    ensure!(again.keys.is_none() && again.secret == state.secret);
    ensure!(fleet.reports().await?.len() == 1);
    ensure!(is_set(OperatorKind::Blocked, 60).await?);
    let state = fleet.report(&report(state.version)).await?;
    let list = state.keys.ok_or("the list is new")?;
    ensure!(list.len() == 1 && list[0].kind == OperatorKind::Blocked);
    ensure!(is_set(OperatorKind::Blocked, 0).await?);
    let state = fleet.report(&report(state.version)).await?;
    ensure!(state.keys == Some(Vec::new()));
    Ok(())
}

async fn takes_on(store: RedisStore, admin: &mut Connection) -> Result<(), Broken> {
    talk(&store).await?;
    take_turns(&store).await?;
    let rule = Rule::new("partner", [Quota::per_hour(3)])?.with_outgoing()?;
    let outgoing = take(&Arc::new(rule), "a");
    store.hold(&outgoing, PATIENT).await?;
    ensure!(store.take(&outgoing).await?.is_on_hold());
    ensure!(store.reset(&outgoing).await? && store.take(&outgoing).await?.is_allowed());
    let clock = ManualClock::default();
    clock.set(1_000_000_000);
    for algorithm in Algorithm::ALL {
        let take = take(&by(algorithm, algorithm.name(), 3, HOUR), "a");
        for at in 0..5 {
            ensure!(store.take(&take).await?.is_allowed() == (at < 3));
        }
    }
    // The scripts are lost, and come back.
    cmd("SCRIPT").arg("FLUSH").exec(admin)?;
    let store = store.clock(clock.clone());
    for from in Algorithm::ALL {
        for to in Algorithm::ALL {
            let path = format!("{}-{}", from.name(), to.name());
            let rule = |algorithm| by(algorithm, &path, 10, SECOND);
            let [old, new] = [from, to].map(|it| Take::new(rule(it), Key::default()));
            let mut receipts = Vec::new();
            for _ in 0..3 {
                clock.set(clock.now() + 2_000);
                receipts.extend(store.take(&old).await?.receipt());
            }
            ensure!(store.refund(&old, &receipts[1]).await? == 1);
            store.reset(&take(old.rule(), "nobody")).await?;
            let batch = [1, 1, 100, 0].map(|cost| new.clone().with_cost(cost));
            let decisions = kit::ask_all(&store, &batch).await?;
            ensure!(decisions[1].is_allowed() && !decisions[2].is_allowed());
            let receipt = decisions[0].receipt().ok_or("it was charged")?;
            clock.set(clock.now() + 900_000);
            store.refund(&new, &receipt).await?;
            for _ in 0..3 {
                clock.set(clock.now() + 600_000);
                ensure!(store.take(&new).await?.is_allowed());
            }
            // An earlier rule's window is longer.
            let hour = Take::new(by(to, &path, 90, HOUR), Key::default());
            store.take(&hour).await?;
            clock.set(clock.now() + 2_000_000);
            for _ in 0..2 {
                ensure!(store.take(&new).await?.is_allowed());
            }
            // The clock goes back.
            clock.set(clock.now() - 10_000);
            ensure!(store.take(&new).await?.is_allowed());
            // Of a log, more than one unit has to leave first.
            store.take(&new.clone().with_cost(10)).await?;
        }
    }
    Ok(())
}

/// All that limiters and locks do.
async fn use_primitives(server: &Server) -> Result<(), Broken> {
    let clock = ManualClock::default();
    clock.set(1_000_000_000);
    let redis = Redis::connect(&url(server, "primitives")).await?;
    let redis = redis.timeout(PATIENT);
    // By the server's own clock.
    for generation in [Generation::First, Generation::Second, Generation::Third] {
        let limiter = RateLimiter::new(&redis, format!("app:{generation:?}"));
        let limiter = limiter.generation(generation);
        ensure!(!limiter.exists().await?);
        limiter.set_rate(Rate::overall(3, MINUTE)?).await?;
        ensure!(limiter.try_acquire(2).await? && !limiter.try_acquire(2).await?);
        ensure!(limiter.available_permits().await? == 1 && limiter.stored_rate().await?.is_some());
        ensure!(limiter.expire(MINUTE).await? && limiter.delete().await?);
    }
    cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection())?;
    let by_hand = || LimiterBackend::redis_with_clock(&redis, clock.clone());
    for (name, rate) in [
        ("app:all", Rate::overall(5, 10 * SECOND)?),
        ("app:each", Rate::per_client(5, 10 * SECOND)?),
    ] {
        let limiter = RateLimiter::new(by_hand(), name).shared_with_redisson();
        ensure!(limiter.try_set_rate(rate).await?);
        for _ in 0..3 {
            ensure!(limiter.try_acquire(1).await?);
            clock.set(clock.now() + 4_000_000);
        }
        // One has left.
        ensure!(limiter.try_acquire(1).await?);
        ensure!(limiter.release(1).await? == 1);
        let kept = rate.with_keep_alive(100 * SECOND)?;
        ensure!(limiter.clone().rate(kept).try_acquire(1).await?);
        ensure!(limiter.try_acquire(1).await?);
        limiter.set_rate(rate).await?;
        ensure!(limiter.try_acquire(5).await?);
    }
    stand_in_line(server, &clock).await?;
    let limiter = RateLimiter::new(by_hand(), "app:two").generation(Generation::Third);
    ensure!(limiter.try_set_rate(Rate::overall(5, 10 * SECOND)?).await?);
    ensure!(limiter.try_acquire(1).await?);
    clock.set(clock.now() + 2_000_000);
    ensure!(limiter.try_acquire(2).await?);
    clock.set(clock.now() + 9_000_000);
    ensure!(limiter.try_acquire(1).await?);

    use_locks(&redis).await
}

/// Processes wait for permits one behind the other, and leave.
async fn stand_in_line(server: &Server, clock: &ManualClock) -> Result<(), Broken> {
    let mut waiting = Vec::new();
    for others in 0..3 {
        let redis = Redis::connect(&url(server, "primitives")).await?;
        let on = LimiterBackend::redis_with_clock(&redis.timeout(PATIENT), clock.clone());
        let limiter = RateLimiter::new(on, "app:line").fair();
        limiter.try_set_rate(Rate::overall(5, 10 * SECOND)?).await?;
        waiting.push(tokio::spawn(async move {
            limiter.try_acquire_for(5, MINUTE).await
        }));
        let began = Instant::now();
        let mut number = cmd("ZCARD");
        number.arg("{app:line}:waiting");
        while number.query::<usize>(&mut server.connection())? < others {
            ensure!(began.elapsed() < SECOND || !waiting[others].is_finished());
            ensure!(began.elapsed() < PATIENT);
            sleep(SECOND / 100).await;
        }
    }
    for one in &waiting {
        one.abort();
    }
    // Their places are given up in the background.
    sleep(SECOND / 5).await;
    Ok(())
}

async fn use_locks(redis: &Redis) -> Result<(), Broken> {
    let lock = Lock::new(redis, "app:report").lease(Duration::from_secs(30));
    let guard = lock.lock().await?;
    ensure!(lock.try_lock().await?.is_none() && lock.is_locked().await?);
    ensure!(lock.remaining().await?.is_some());
    let other = lock.clone();
    let waiting = tokio::spawn(async move { other.try_lock_for(PATIENT).await });
    sleep(millis(300)).await;
    guard.release().await?;
    let guard = waiting.await??.ok_or("it became free")?;
    ensure!(lock.force_unlock().await?);
    ensure!(guard.release().await.is_err());

    // A lease that is renewed while it is held.
    let short = lock.lease(millis(300));
    let guard = short.lock().await?;
    sleep(millis(400)).await;
    drop(guard);
    // The subscriber tells the server that nobody listens any more.
    sleep(millis(300)).await;
    Ok(())
}

/// Runs it with the line as it stands, and then without each of its commands.
macro_rules! check {
    ($user:literal, $exercise:ident) => {
        let server = Server::start();
        let mut admin = server.connection();
        let line = line($user);
        acl::<()>(&mut admin, &line);
        $exercise(&server).await.expect("the line is enough");
        assert_eq!(refused(&mut admin), BTreeSet::new());

        // Calls with several keys alone need it, and stores send none yet.
        for command in commands(&line).into_iter().filter(|name| *name != "mget") {
            cmd("FLUSHALL").exec(&mut admin).expect("empties it");
            let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
            let killed = cmd("CLIENT").arg(&kill).exec(&mut admin);
            killed.expect("ends what is left");
            acl::<()>(&mut admin, &without(&line, &format!("+{command}")));
            acl::<()>(&mut admin, &["LOG", "RESET"]);
            let outcome = $exercise(&server).await;
            let what = format!("somebody needs {command}: {outcome:?}");
            let is_refused = async || refused(&mut admin).contains(command);
            within(5 * SECOND, &what, is_refused).await;
            // Whoever may not say what was counted must not be let through.
            let tried_only = words("script|load publish subscribe unsubscribe");
            let is_tried_only = tried_only.contains(&command);
            let is_right = $user != "takes" || is_tried_only || outcome.is_err();
            assert!(is_right, "takes work without {command}");
        }
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_need_all_of_their_line() {
    check!("takes", use_takes);
    check!("shop", use_takes_of_a_service);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primitives_need_all_of_their_line() {
    check!("primitives", use_primitives);
}

/// Before it serves requests, a service learns what its line lacks.
#[tokio::test]
async fn what_a_line_lacks_is_told_at_the_start() {
    let server = Server::start();
    let mut admin = server.connection();
    let whole = line("shop");
    let url = url(&server, "shop");
    let ready = async |line: &[String]| {
        acl::<()>(&mut server.connection(), line);
        let store = Resilient::redis(&*url, "shop").expect("an address");
        let begun = Instant::now();
        let ready = store.timeout(PATIENT).ready(MINUTE).await;
        assert!(begun.elapsed() < PATIENT, "it was not told at once");
        ready
    };
    ready(&whole).await.expect("the line is enough");
    assert_eq!(refused(&mut admin), BTreeSet::new());
    let of_log = words("zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank");
    let others = words("zremrangebyscore pexpire evalsha eval time get mget set");
    for command in [of_log, others].concat() {
        let lacking = without(&whole, &format!("+{command}"));
        let error = ready(&lacking).await.expect_err(command);
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        let text = error.to_string();
        let told = [format!("'{command}'"), "docs/security.md".to_owned()];
        let is_told = told.iter().all(|part| text.contains(part));
        assert!(is_told && !text.contains("shop has"), "{text}");
    }
    // A line that names single paths.
    let keys = |added: &[&str]| -> Vec<String> {
        let words = whole.iter().filter(|word| !word.starts_with('~'));
        let added = added.iter().map(|word| (*word).to_owned());
        words.cloned().chain(added).collect()
    };
    let narrow = ["~shop:CurrentLimiter:login*"];
    let error = ready(&keys(&narrow)).await.expect_err("another key");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("~shop:~ready*") && text.contains("docs/security.md"),
        "{text}"
    );
    assert!(PAGE.contains("`~shop:~ready*`"));
    let wider = [narrow[0], "~shop:~ready*"];
    ready(&keys(&wider)).await.expect("it may decide there");
}

/// What the scripts call, in their text.
#[test]
fn the_lines_name_what_the_scripts_call() {
    let called = |root: &str, folders: &[&str]| {
        let mut called = BTreeSet::new();
        for folder in folders {
            let folder = kit::root().join(root).join(folder);
            for file in std::fs::read_dir(folder).expect("a folder") {
                let path = file.expect("a file").path();
                if !path.is_file() {
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("text");
                for call in text.split("call('").skip(1) {
                    let name = call.split('\'').next().unwrap_or_default();
                    called.insert(name.to_ascii_lowercase());
                }
            }
        }
        called
    };
    let named = |user: &str, besides: &[&str]| {
        let line = line(user);
        let mut commands = commands(&line);
        commands.retain(|name| !besides.contains(name));
        commands
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let scripts = ["eval", "evalsha", "script|load"];
    let besides = [&scripts[..], &["subscribe", "unsubscribe"]].concat();
    let of_takes = called("lua", &["", "include", "permits", "refund"]);
    assert_eq!(named("takes", &besides), of_takes);

    let mut of_scripts = called("crates/redisson/lua", &["limiter", "lock", "include"]);
    of_scripts.extend(["hmget", "exists"].map(str::to_owned));
    assert_eq!(named("primitives", &besides), of_scripts);
}

#[tokio::test]
async fn other_keys_are_refused() {
    let server = Server::start();
    let mut admin = server.connection();
    for user in ["takes", "primitives"] {
        acl::<()>(&mut admin, &line(user));
    }
    let store = RedisStore::connect(&url(&server, "takes")).await;
    let store = store.expect("it may").timeout(PATIENT);
    for algorithm in Algorithm::ALL {
        let rule = per_hour("p", 3).with_algorithm(algorithm);
        let rule = Arc::new(rule.with_prefix("Sessions:"));
        let error = store.take(&Take::new(rule, Key::default())).await;
        let seen = error.expect_err("it may not").kind();
        assert_eq!(seen, StoreErrorKind::Refused);
    }
    let take = Take::new(rule("p", 3, HOUR), Key::default());
    let taken = store.take(&take).await.expect("it may");
    let receipt = taken.receipt().expect("it was charged");
    let other = store.clone().prefix("Sessions:");
    let error = other.refund(&take, &receipt).await.expect_err("it may not");
    assert_eq!(error.kind(), StoreErrorKind::Refused);

    let redis = handle(&url(&server, "primitives")).await;
    let limiter = RateLimiter::new(&redis, "theirs").try_acquire(1).await;
    let lock = Lock::new(&redis, "theirs").try_lock().await;
    for answer in [format!("{limiter:?}"), format!("{lock:?}")] {
        assert!(
            answer.starts_with("Err(") && answer.contains("Refused"),
            "{answer}"
        );
    }
    assert_eq!(server.names(), ["CurrentLimiter:p"]);
}

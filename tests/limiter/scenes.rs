//! What each call does, as scenes: steps that are played in memory, where time stands still while
//! anything runs, and on Redis. A failure names the scene, the step, and what came of it.
//!
//! A step is a call and what comes of it, by default `true`. Before it stands who calls, by default
//! the process `a`; `b` is another process. All others are limiters with a rate or a generation of
//! their own, in the process `a`, or in the other one if their names begin with `b`. Times are
//! milliseconds, a rate is `PERMITS/INTERVAL+KEEP_ALIVE`, and `@` is the limiter's name.

use tidegate::limiter::RateType;

use crate::*;

const GENERATIONS: [Generation; 3] = [Generation::First, Generation::Second, Generation::Third];

const ON_BOTH: &[(&str, &str)] = &[
    (
        "the first rate wins",
        "first 3/60000; first each 5/1000 = false; has 3/60000",
    ),
    (
        "permits are counted by weight",
        "first 10/60000; take 4; take 4; take 3 = false; free = 2; take 2; free = 0",
    ),
    (
        "who asks for nonsense is told",
        "first 3/60000; take 0 = NoPermits; within 0 1000 = NoPermits; wait 0 = NoPermits; \
         back 0 = 0; take 4 = AboveRate; fair wait 4 = AboveRate; take 4294967296 = AboveRate; \
         fair wait 4294967296 = AboveRate; take 18446744073709551615 = AboveRate; \
         fair wait 18446744073709551615 = AboveRate; free = 3",
    ),
    (
        "an unknown limiter is an error, and nothing is written",
        "take 1 = UnknownLimiter; wait 1 = UnknownLimiter; fair wait 1 = UnknownLimiter; \
         back 1 = UnknownLimiter; free = UnknownLimiter; has none; there = false; \
         expire 1000 = false; there = false",
    ),
    (
        "a new rate clears",
        "first 3/60000; take 3; set 2/60000; free = 2; take 2; set each 4/60000; free = 4",
    ),
    (
        "a rate of a newer process keeps the counts",
        "first 3/60000; take 2; keep 10/60000; free = 8; keep 1/60000; free = 0; keep 2/60000; \
         free = 0; keep 3/60000; free = 1; take 2 = false; take 1",
    ),
    (
        "what is released is there again, but no more",
        "first 5/60000; back 3 = 0; take 2; sleep 3; take 3; back 1 = 1; free = 1; back 2 = 2; \
         free = 3; back 100 = 2; free = 5; take 5; take 1 = false",
    ),
    (
        "a deleted limiter is gone",
        "first 2/60000; take 2; there; delete; delete = false; take 1 = UnknownLimiter; \
         first 2/60000; free = 2",
    ),
    // By a time that a busy machine does not sleep longer.
    (
        "rates are forgotten when told, and callers keep them alive",
        "first 2/10; expire 60; sleep 80; there = false; first 2/10+600; has 2/10+600; sleep 200; \
         take 1; sleep 200; take 1; sleep 200; take 1; sleep 200; take 1; sleep 620; there = false",
    ),
    (
        "what is forgotten and set anew refills nothing",
        "first 3/3600000; take 3; expire 500; expire 3600000; sleep 600; take 1 = false; \
         expire 30; gone; take 1 = UnknownLimiter; first 3/3600000; take 1 = false",
    ),
    (
        "a longer rate counts nothing that had expired",
        "first 10/200; take 10; sleep 220; expire 30; gone; first 10/60000; free = 10; take 10",
    ),
    (
        "a rate that was kept alive leaves no counts",
        "first 10/100+100; take 10; gone; first 10/60000; take 10",
    ),
    (
        "what had expired counts for no client again",
        "first each 10/200; take 10; b: take 10; sleep 220; keep each 10/3600000; free = 10; \
         take 10; take 1 = false; b: free = 10; b: take 10; b: take 1 = false; expire 30; gone; \
         first each 10/3600000; take 1 = false; b: take 1 = false; delete; \
         first each 10/3600000; take 10; b: take 10",
    ),
    (
        "a permit comes back once",
        "first 5/60000; permit 3 = 3; free = 2; release = 3; free = 5; permit 3 = 3; drop; free = 2",
    ),
    (
        "a permit of an earlier rate does not come back",
        "first 5/60000; permit 3 = 3; set 5/60000; take 5; release = 0; free = 0",
    ),
    (
        "a time-out of zero tries once",
        "first 1/60000; within 1 0; within 1 0 = false",
    ),
    // Once in a process, whoever makes another limiter with the same rate.
    (
        "another rate is replaced at the first use, and what was granted counts",
        "x: new 8/60000; set 5/60000; take 5; x: take 1; x: stored = 8; x: take 2; \
         x: take 1 = false; set 5/60000; y: new 8/60000; y: take 5; x: stored = 5",
    ),
    (
        "what is set by hand later stands",
        "x: new 8/60000; x: take 1; x: set 5/60000; x: take 5; x: stored = 5; x: keep 6/60000; \
         x: stands = 6; x: set 20/60000; x: take 5; x: stored = 20; x: keep 21/60000; x: stands = 21",
    ),
    // They do not take turns. Where the new one is used first, the old one changes nothing.
    (
        "of two in one process the one made last stands, once it is used",
        "x: new 10/60000; y: new 20/60000; x: stands = 10; y: stands = 20; x: stands = 20; \
         y: stands = 20; x: stands = 20; y: stands = 20; x: stands = 20; z: new 10/60000; \
         z: stands = 10; y: stands = 10; x: stands = 10; u: new 30/60000; v: new 40/60000; \
         v: stands = 40; u: stands = 40",
    ),
    (
        "a rate is set before it is judged",
        "set 2/60000; x: new 5/60000; x: take 5; x: wait 6 = AboveRate",
    ),
    (
        "a limiter that was not used yet is full, and writes nothing",
        "x: new 7/60000; x: free = 7; x: back 1 = 0; x: stored = 0",
    ),
];

const ON_REDIS: &[(&str, &str)] = &[
    // A holds 4, B 6 of 10.
    (
        "nobody gives back what others hold",
        "first 10/60000; take 4; b: take 6; back 10 = 4; back 10 = 0; b: back 5 = 5; b: free = 9",
    ),
    // A value above what the set says.
    (
        "what Redisson released is not granted twice",
        "first 2/60000; take 1; take 1; redis INCRBY {@}:value 2; take 1 = false",
    ),
    // Who asks for one at a time, now and then, is never denied, and still it is seen.
    (
        "a value that is too low is mended when all has left",
        "set 10/500; take 1; redis SET {@}:value 0; sleep 600; take 1; sleep 600; take 1; \
         sleep 600; take 1; sleep 600; take 1; free = 9",
    ),
    (
        "a value below zero is healed, and gives no reservation away",
        "first 2/1000; take 2; redis SET {@}:value -7; sleep 1020; fair within 1 400 = false; \
         within 2 20000",
    ),
    // Later grants stay in the place of those that were lost: the first four are not there to come
    // back. Of six, the four before the loss and two later ones. What was lost counts on.
    (
        "a release after a loss frees no later grant",
        "first 10/3600000; take 4; redis DEL {@}:permits; take 3; take 3; back 4 = 0; free = 0; \
         back 6 = 2; free = 2; back 100 = 4; free = 6",
    ),
    (
        "the same before the loss is noticed",
        "first 10/3600000; take 4; redis DEL {@}:permits; back 4 = 0; take 6; back 4 = 0; \
         take 1 = false",
    ),
    (
        "a new rate reaches all clients",
        "first each 3/60000; take 3; take 1 = false; b: take 3; b: take 1 = false; \
         keep each 4/60000; free = 1; take 1; take 1 = false; b: free = 1; b: take 1; \
         b: take 1 = false; set each 4/60000; free = 4; take 4; take 1 = false; b: free = 4; \
         b: take 4; b: take 1 = false",
    ),
    (
        "a new rate has an expiry of its own",
        "first 3/1000; expire 20000; set 4/1000; look PTTL @ = -1",
    ),
    (
        "foreign values are typed errors, and half of a configuration is none",
        "first 5/60000; redis RPUSH {@}:value 1; take 1 = Store(WrongType); fair wait 1 = \
         Store(WrongType); look LLEN {@}:value = 1; redis DEL {@}:value; redis RPUSH \
         {@}:permits 1; take 1 = Store(WrongType); fair wait 1 = Store(WrongType); look LLEN \
         {@}:permits = 1; redis DEL {@}:permits; redis HSET @ rate many; take 1 = Malformed; \
         set 5/60000; redis HSET @ interval 0; take 1 = Malformed; set 5/60000; redis HSET @ \
         interval 1.5; take 1 = Malformed; set 5/60000; redis HSET @ type 2; take 1 = \
         Malformed; set 5/60000; redis HSET @ keepAliveTime x; take 1 = Malformed; set 5/60000; \
         redis HDEL @ keepAliveTime; redis HDEL @ type; take 1 = UnknownLimiter; first 5/60000; \
         take 5",
    ),
    (
        "a keep-alive time that makes no sense is told, and nothing is written",
        "first 3/1000; redis HSET @ keepAliveTime 1e300; take 1 = Malformed; look PTTL \
         {@}:permits = -2; redis HSET @ keepAliveTime inf; take 1 = Malformed; look PTTL \
         {@}:permits = -2; redis HSET @ keepAliveTime -5; take 1 = Malformed; look PTTL \
         {@}:permits = -2; redis HSET @ keepAliveTime 1.5; take 1 = Malformed; look PTTL \
         {@}:permits = -2; redis HSET @ keepAliveTime 9223372036854775807; take 1 = Malformed; \
         look PTTL {@}:permits = -2",
    ),
    // By its keep-alive time, with all counts, or by hand. They do not take turns. A server's clock of
    // commands may be a millisecond behind that of its scripts.
    (
        "a rate that is forgotten is set by who comes first, and the newest start wins",
        "x: new 30/100+1500; x: take 1; sleep 5; by: new 20/100+1500; by: take 1; sleep 2000; \
         x: there = false; sleep 100; x: take 1; x: stored = 30; by: take 1; x: stored = 20; x: \
         stands = 20; by: lives 1501; redis DEL @ {@}:value {@}:permits {@}:forgotten; x: there \
         = false; sleep 100; by: take 1; by: stored = 20; x: take 1; x: stored = 20; x: stands \
         = 20; by: lives 1501; redis DEL @; x: there = false; sleep 100; x: take 1; x: stored = \
         30; by: take 1; x: stored = 20; x: stands = 20; by: lives 1501; sleep 2000; x: there = \
         false; sleep 100; by: take 1; by: stored = 20; x: take 1; x: stored = 20; x: stands = \
         20; by: lives 1501; redis DEL @ {@}:value {@}:permits {@}:forgotten; x: there = false; \
         sleep 100; x: take 1; x: stored = 30; by: take 1; x: stored = 20; x: stands = 20; by: \
         lives 1501; redis DEL @; x: there = false; sleep 100; by: take 1; by: stored = 20; x: \
         take 1; x: stored = 20; x: stands = 20; by: lives 1501; sleep 3200; look EXISTS @ \
         {@}:value {@}:permits = 0",
    ),
    (
        "earlier generations lack something, which is said",
        "first 3/3600000; x: generation 1; x: back 1 = Unsupported; x: fair wait 1 = Unsupported; \
         x: take 1; y: generation 2; y: back 1 = Unsupported; y: fair wait 1 = Unsupported; \
         y: take 1",
    ),
    // While its processes run: the hash says that no client of Redisson uses the limiter.
    (
        "our own fleet moves from the first generation to the second, and back",
        "x: new 5/60000; y: new 5/60000; x: generation 1; y: generation 2; x: take 2; y: take 1; \
         x: take 1; y: take 1; y: take 1 = false; x: take 1 = false",
    ),
    (
        "our own fleet moves from the second generation to the third, and back",
        "x: new 5/60000; y: new 5/60000; x: generation 2; y: generation 3; x: take 2; y: take 1; \
         x: take 1; y: take 1; y: take 1 = false; x: take 1 = false",
    ),
];

const IN_MEMORY: (&str, &str) = (
    "earlier generations are not in memory",
    "first 3/60000; x: generation 1; x: take 1 = Unsupported",
);

/// `none`, or a rate as steps write it.
fn rate(text: &str) -> Option<Rate> {
    let (rate_type, text) = match text.strip_prefix("each ") {
        Some(text) => (RateType::PerClient, text),
        None => (RateType::Overall, text),
    };
    let (permits, times) = text.split_once('/')?;
    let (interval, kept) = times.split_once('+').unwrap_or((times, ""));
    let number = |text: &str| text.parse().expect(text);
    let rate = Rate::new(rate_type, number(permits), millis(number(interval)));
    let rate = rate.expect("a valid rate");
    Some(match kept {
        "" => rate,
        kept => rate.with_keep_alive(millis(number(kept))).expect("valid"),
    })
}

fn yes<T>(_: T) -> String {
    true.to_string()
}

fn told(answer: Result<impl ToString, LimiterError>) -> String {
    answer.map_or_else(|error| format!("{:?}", error.kind()), |it| it.to_string())
}

/// Returns the first step that another answer came of.
async fn play(
    scene: &str,
    steps: &str,
    on: [LimiterBackend; 2],
    server: Option<&kit::Redis>,
) -> Result<(), String> {
    let [a, b] = on.map(|on| RateLimiter::new(on, scene.replace(' ', "-")));
    let name = a.name().to_owned();
    let mut all = HashMap::new();
    let mut permit = None;
    for step in steps.split("; ") {
        let (who, call) = step.split_once(": ").unwrap_or(("a", step));
        let (call, expected) = call.split_once(" = ").unwrap_or((call, "true"));
        let (at, fair) = (format!("{scene}: {step}"), call.strip_prefix("fair "));
        let process = if who.starts_with('b') { &b } else { &a };
        let limiter = all.get(who).unwrap_or(process).fair_if(fair.is_some());
        let (call, of) = fair.unwrap_or(call).split_once(' ').unwrap_or((call, ""));
        let numbers = of.split(' ').map(|number| number.parse().unwrap_or(0));
        let [number, time] = [0, 1].map(|at| numbers.clone().nth(at).unwrap_or(0));
        let new = || rate(of).expect("a rate");
        let stored = async || {
            let stored = limiter.stored_rate().await;
            told(stored.map(|stored| stored.map_or(0, |rate| rate.permits())))
        };
        let seen = match call {
            "new" => yes(all.insert(who, limiter.rate(new()))),
            "generation" => {
                yes(all.insert(who, limiter.generation(GENERATIONS[number as usize - 1])))
            }
            "sleep" => sleep(millis(number)).map(yes).await,
            "redis" => yes(server.map(|server| run(server, &of.replace('@', &name)))),
            "gone" => {
                within(PATIENT, &at, async || !limiter.is_there().await)
                    .map(yes)
                    .await
            }
            "look" => server.map_or_else(String::new, |it| it.run(&of.replace('@', &name))),
            "permit" => match limiter.acquire_permit(number).await {
                Ok(got) => permit.insert(got).permits().to_string(),
                Err(error) => told(Err::<u64, _>(error)),
            },
            "drop" => yes(permit.take()),
            "keep" => told(replace_rate(&limiter, new()).await),
            "release" => told(permit.take().expect("a permit").release().await),
            "first" => told(limiter.try_set_rate(new()).await),
            "set" => told(limiter.set_rate(new()).await.map(|()| true)),
            "has" => told(limiter.stored_rate().await.map(|stored| stored == rate(of))),
            "stored" => stored().await,
            "stands" => match told(limiter.try_acquire(1).await).as_str() {
                "true" => stored().await,
                other => other.to_owned(),
            },
            "take" => told(limiter.try_acquire(number).await),
            "within" => told(limiter.try_acquire_for(number, millis(time)).await),
            "wait" => told(limiter.acquire(number).await.map(|()| true)),
            "back" => told(limiter.release(number).await),
            "free" => told(limiter.available_permits().await),
            "lives" => {
                let remaining = limiter.remaining().await.expect(&at);
                remaining.is_some_and(|it| it <= millis(number)).to_string()
            }
            "there" => told(limiter.exists().await),
            "expire" => told(limiter.expire(millis(number)).await),
            "delete" => told(limiter.delete().await),
            _ => panic!("no such call: {at}"),
        };
        if seen != expected {
            return Err(format!("{at}: {seen}"));
        }
    }
    Ok(())
}

fn check(played: Vec<Result<(), String>>) {
    let broken: Vec<_> = played.into_iter().filter_map(Result::err).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[tokio::test(start_paused = true)]
async fn in_memory() {
    let all = ON_BOTH.iter().chain([&IN_MEMORY]).map(|(scene, steps)| {
        let limiters = MemoryLimiters::default();
        let on = [limiters.another_client(), limiters].map(LimiterBackend::from);
        play(scene, steps, on, None)
    });
    check(join_all(all).await);
}

#[tokio::test]
async fn on_redis() {
    let server = kit::Redis::start();
    let handles = [connect(&server).await, connect(&server).await];
    let all = ON_BOTH.iter().chain(ON_REDIS).map(|(scene, steps)| {
        let on = handles.each_ref().map(LimiterBackend::from);
        play(scene, steps, on, Some(&server))
    });
    check(join_all(all).await);
}

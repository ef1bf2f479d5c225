//! What each call does, as scenes of `scenes.txt`. A failure names the scene, the step, and what came
//! of it.

use tidegate::limiter::RateType;

use crate::*;

const GENERATIONS: [Generation; 3] = [Generation::First, Generation::Second, Generation::Third];

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

/// The names and the steps of the scenes, but for those that are played elsewhere alone.
fn scenes(elsewhere: &str) -> Vec<(&'static str, String)> {
    let scenes = include_str!("scenes.txt").split("\n== ").skip(1);
    let scenes = scenes.filter(|scene| !scene.starts_with(elsewhere));
    let scenes = scenes.map(|scene| {
        let (name, steps) = scene.split_once('\n').expect("a name");
        let steps = steps.trim_end().lines().filter(|it| !it.starts_with('#'));
        (name, steps.collect::<Vec<_>>().join(" "))
    });
    scenes.collect()
}

fn check(played: Vec<Result<(), String>>) {
    let broken: Vec<_> = played.into_iter().filter_map(Result::err).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[tokio::test(start_paused = true)]
async fn in_memory() {
    let scenes = scenes("on Redis: ");
    let all = scenes.iter().map(|(scene, steps)| {
        let limiters = MemoryLimiters::default();
        let on = [limiters.another_client(), limiters].map(LimiterBackend::from);
        play(scene, steps, on, None)
    });
    check(join_all(all).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    let server = kit::Redis::start();
    let handles = [connect(&server).await, connect(&server).await];
    let scenes = scenes("in memory: ");
    let all = scenes.iter().map(|(scene, steps)| {
        let on = handles.each_ref().map(LimiterBackend::from);
        play(scene, steps, on, Some(&server))
    });
    check(join_all(all).await);
}

//! Law 13, nobody pays for another caller: bystanders at a round trip of some length.

use kit::stalls::nothing_is_lost;

use crate::prelude::*;

const CLIENTS: usize = 12;
const DECISIONS: usize = 60;

/// Clients that keep coming until this is dropped, each with a clone of what they share.
fn clients<T: Clone + Send + 'static, F: Future<Output = ()> + Send + 'static>(
    number: usize,
    shared: &T,
    client: impl Fn(T, usize) -> F + Clone + Send + 'static,
) -> JoinSet<()> {
    background((0..number).map(|at| {
        let (client, shared) = (client.clone(), shared.clone());
        async move {
            loop {
                client(shared.clone(), at).await;
                // What is refused at once must not keep the runtime busy.
                sleep(Duration::from_micros(500)).await;
            }
        }
    }))
}

/// What a bystander loses of its decisions, one after the other. It is a task like the PINGs that it
/// is compared with: the thread of the test competes with those of the runtime.
pub(crate) async fn lost(store: &RedisStore, number: usize) -> Vec<Lost> {
    let store = store.clone();
    let asked = tokio::spawn(async move {
        let bystander = take(&rule("bystander", 1_000_000, HOUR), "");
        let mut lost = Vec::new();
        for _ in 0..number {
            let began = Instant::now();
            if let Err(error) = store.take(&bystander).await {
                lost.push(Lost::since(began, error));
                sleep(millis(3)).await;
            }
        }
        lost
    });
    asked.await.expect("no panic")
}

fn hasty_rule() -> Arc<Rule> {
    rule("hasty", 1_000_000, HOUR)
}

/// Callers over the same connection with a time-out of nothing, and of a microsecond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_hardly_any_time() {
    let (_server, proxy, store) = far_within(millis(20), TIMEOUT).await;
    for hardly in [Duration::ZERO, Duration::from_micros(1), millis(1)] {
        nothing_is_lost(&proxy, millis(35), TIMEOUT, async || {
            let hasty = store.clone().timeout(hardly);
            let _clients = clients(CLIENTS, &hasty, |hasty, at| async move {
                let mine = take(&hasty_rule(), at);
                let answer = hasty.take(&mine).await;
                assert!(answer.is_err(), "no reply comes that early: {answer:?}");
                sleep(millis(2)).await;
            });
            lost(&store, DECISIONS / 2).await
        })
        .await;
    }
}

/// Law 6 and the design of flights: neither do 64 busy callers at 30 ms lose anything at 50 ms, nor
/// does anybody of a steady stream at odd times wait for a flight that left just before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_callers_and_strangers_far_away() {
    let (_server, proxy, store) = far_within(millis(30), TIMEOUT).await;
    for (callers, times, apart, excess) in [(64_u64, 25, 0, 6), (600, 1, 2_711, 5)] {
        nothing_is_lost(&proxy, millis(30 + excess), TIMEOUT, async || {
            let callers = spawn_each(0..callers, store.clone(), |caller, store| async move {
                sleep(Duration::from_micros(caller * apart)).await;
                let mine = take(&rule("far", 1_000_000, HOUR), caller);
                let mut lost = Vec::new();
                for _ in 0..times {
                    let began = Instant::now();
                    if let Err(error) = store.take(&mine).await {
                        lost.push(Lost::since(began, error));
                    }
                }
                lost
            });
            done(callers).await.into_iter().flatten().collect()
        })
        .await;
    }
}

/// What two stores on one handle do to each other: the health of the connection is judged by
/// what arrives, and not by the time-outs of the hastier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hasty_store_on_the_same_handle() {
    let server = Redis::start();
    let proxy = behind(&server, millis(150)).await;
    let redis = tidegate::Redis::connect(&*proxy.url).await.expect("runs");
    let [hasty, patient] = [10, 400].map(|it| RedisStore::of(&redis).timeout(millis(it)));
    let _clients = clients(CLIENTS, &hasty, |hasty, at| async move {
        let mine = take(&hasty_rule(), at);
        let _ = hasty.take(&mine).await;
    });
    nothing_is_lost(&proxy, millis(250), 8 * TIMEOUT, async || {
        lost(&patient, 10).await
    })
    .await;
}

/// A server is held up for a moment: whoever has the time to wait gets a decision.
async fn a_moment_of_silence(all_connections: bool, hasty_callers: usize) -> String {
    let (_server, proxy, store) = far_within(Duration::ZERO, 40 * TIMEOUT).await;
    let hasty = store.clone().timeout(millis(1));
    let _clients = clients(hasty_callers, &hasty, |hasty, at| async move {
        let _ = hasty.take(&take(&hasty_rule(), at)).await;
        sleep(millis(1)).await;
    });
    let (mut errors, mut worst) = (Vec::new(), Duration::ZERO);
    for silence in [110, 130, 160, 200, 300] {
        sleep(millis(60)).await;
        match all_connections {
            true => proxy.all(Mode::Hold),
            false => proxy.present(Mode::Hold),
        }
        let takes = (0..40).map(async |at| {
            sleep(millis(at * 4)).await;
            let asked = Instant::now();
            let answer = store.take(&take(&rule("calm", 1_000_000, HOUR), at)).await;
            (answer, asked.elapsed())
        });
        let ends = async {
            sleep(millis(silence)).await;
            proxy.all(Mode::Pass);
        };
        let (answers, ()) = tokio::join!(join_all(takes), ends);
        for (answer, took) in answers {
            worst = worst.max(took);
            errors.extend(answer.err().map(|error| format!("{silence} ms: {error}")));
        }
    }
    assert!(worst < millis(1_500), "{worst:?}");
    errors.first().cloned().unwrap_or_default()
}

/// Of the server, which is all connections, and of the link, without and beside hasty callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moments_of_silence() {
    for (all_connections, hasty) in [(true, 0), (false, 0), (true, 4), (false, 4)] {
        let lost = a_moment_of_silence(all_connections, hasty).await;
        assert_eq!(lost, "", "law 13: all {all_connections}, {hasty} hasty");
    }
}

//! Beside other processes that wait for the same lock, and are slow to wake up.

use futures_util::StreamExt;
use redis::Script;
use redis::aio::PubSub;

use crate::*;

/// Long enough that a hold is a turn.
const HOLD: Duration = millis(12);

/// Somebody who hears of releases.
async fn listener(server: &Redis) -> PubSub {
    let client = redis::Client::open(&*server.url).expect("a valid address");
    let mut channel = client.get_async_pubsub().await.expect("a running server");
    channel.subscribe(CHANNEL).await.expect("subscribes");
    channel
}

/// Another process that waits for the lock: it asks some time after each message, and keeps the
/// lock for a while. How many messages it heard until it had the lock.
async fn slow_neighbour(server: &Redis) -> JoinHandle<u32> {
    let mut channel = listener(server).await;
    let mut connection = kit::async_connection(&server.url).await;
    tokio::spawn(async move {
        let take = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
            redis.call('HSET', KEYS[1], 'neighbour', 1)
            redis.call('PEXPIRE', KEYS[1], 30000)
            return 1";
        let free = "redis.call('DEL', KEYS[1])
            redis.call('PUBLISH', ARGV[1], 0)";
        let (take, free) = (Script::new(take), Script::new(free));
        let mut messages = channel.on_message();
        let mut heard = 0;
        loop {
            messages.next().await.expect("a message");
            heard += 1;
            sleep(millis(2)).await;
            let taken = take.key("l").invoke_async::<u8>(&mut connection).await;
            if taken.expect("an answer") == 1 {
                sleep(millis(30)).await;
                let mut free = free.key("l");
                let freed = free.arg(CHANNEL).invoke_async::<()>(&mut connection).await;
                freed.expect("an answer");
                return heard;
            }
        }
    })
}

/// Holds it for so long, and how long that took to get: at most by the wall clock, and at least
/// apart from the time in which the machine was busy.
async fn hold(server: &Redis, lock: &Lock, hold: Duration) -> [Duration; 2] {
    let asked = server.stopwatch();
    let guard = lock.holds().await;
    let waited = [asked.elapsed(), asked.waited()];
    sleep(hold).await;
    frees(guard).await;
    waited
}

/// Whoever releases and asks again at once comes behind those who wait.
#[tokio::test]
async fn others_go_before_who_asks_again() {
    let (server, lock) = a_lock().await;
    let (mut first, mut again) = (0, 0);
    for _ in 0..40 {
        let neighbour = slow_neighbour(&server).await;
        let round = server.stopwatch();
        hold(&server, &lock, HOLD).await;
        hold(&server, &lock, HOLD).await;
        // The neighbour asks within the pause, unless the machine keeps it from that.
        let is_in_time = round.busy() < millis(4);
        match neighbour.is_finished() {
            true => first += 1,
            false => again += u32::from(is_in_time),
        }
        hold(&server, &lock, HOLD).await;
        neighbour.await.expect("no panic");
        if first + again == 10 {
            break;
        }
    }
    let is_right = again <= 2;
    assert!(is_right, "it had to wait again {again} times, not {first}");
}

/// Those who wait in this process leave it to others at times, also between short holds.
#[tokio::test]
async fn others_go_between_those_who_wait() {
    for (hold_for, is_dropped) in [(Duration::ZERO, false), (HOLD, false), (HOLD, true)] {
        // What was learnt of others by one kind of release would hide that another learns nothing.
        let (server, lock) = a_lock().await;
        let neighbour = slow_neighbour(&server).await;
        let ours = (0..4).map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                loop {
                    let guard = lock.holds().await;
                    sleep(hold_for).await;
                    match is_dropped {
                        true => drop(guard),
                        false => frees(guard).await,
                    }
                }
            })
        });
        let ours: Vec<_> = ours.collect();
        let heard = timeout(PATIENT, neighbour).await;
        let heard = heard.expect("it has the lock soon").expect("no panic");
        ours.into_iter().for_each(|task| task.abort());
        let most = if hold_for.is_zero() { 60 } else { 8 };
        assert!(heard <= most, "{heard} holds before the neighbour's");
        sleep(millis(50)).await;
    }
}

/// How long most holds have to be waited for, at most and at least.
async fn waits(server: &Redis, lock: &Lock, hold_for: Duration) -> [Duration; 2] {
    let (mut most, mut least) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let waited = hold(server, lock, hold_for).await;
        most.push(waited[0]);
        least.push(waited[1]);
    }
    [most, least].map(|mut waits| {
        waits.sort();
        waits[10]
    })
}

/// Without anybody who listens nobody waits; one who listens and does not ask costs a pause.
#[tokio::test]
async fn a_pause_is_for_those_who_listen() {
    let (server, lock) = a_lock().await;
    let [_, alone] = waits(&server, &lock, HOLD).await;
    assert!(alone < millis(4), "{alone:?}");

    let deaf = listener(&server).await;
    let [most, least] = waits(&server, &lock, HOLD).await;
    assert!(most > millis(3), "{most:?}");
    assert!(least < millis(100), "{least:?}");

    drop(deaf);
    eventually("nobody listens", async || !server.is_listened_to(CHANNEL)).await;
    let [_, alone] = waits(&server, &lock, HOLD).await;
    assert!(alone < millis(4), "{alone:?}");
}

/// Who has no time to wait, or has the lock already, asks at once.
#[tokio::test]
async fn some_do_not_wait_for_others() {
    let (server, lock) = a_lock().await;
    let _deaf = listener(&server).await;

    hold(&server, &lock, HOLD).await;
    assert!(lock.tries().await.is_some());
    hold(&server, &lock, HOLD).await;
    let short = lock.try_lock_for(millis(1)).await;
    assert!(short.expect("an answer").is_some());

    let mine = lock.by(&Owner::new());
    let outer = mine.holds().await;
    sleep(HOLD).await;
    let [_, inner] = waits(&server, &mine, Duration::ZERO).await;
    assert!(inner < millis(4), "{inner:?}");
    frees(outer).await;
}

//! Bare calls, and takes, one after the other: tests/redis_next.sh counts the instructions.

use std::env::args;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Key, Quota, RedisStore, Rule, Store, Take};
use tokio::runtime::Builder;

const CALLS: u32 = 2_000;

/// Callgrind counts between the entry of this function and its end.
#[inline(never)]
fn counted(run: &mut dyn FnMut()) {
    run();
    std::hint::black_box(());
}

/// Prints how many calls are counted: a line for each kind of call.
fn main() -> Result<(), Box<dyn Error>> {
    let url = args().nth(1).ok_or("expected a URL")?;
    let runtime = Builder::new_current_thread().enable_all().build()?;

    let client = redis::Client::open(&*url)?;
    let mut bare = runtime.block_on(client.get_multiplexed_async_connection())?;
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg("return 1");
    let sha: String = runtime.block_on(load.query_async(&mut bare))?;
    let mut ask = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                let mut call = redis::cmd("EVALSHA");
                let reply = call
                    .arg(&sha)
                    .arg(1)
                    .arg("key")
                    .query_async::<u64>(&mut bare);
                assert_eq!(reply.await, Ok(1));
            }
        });
    };
    ask(CALLS);
    counted(&mut || ask(CALLS));
    println!("{CALLS}");

    // Callgrind makes a program fifty times as slow.
    let store = runtime.block_on(RedisStore::connect(&*url))?;
    let store = store.timeout(Duration::from_secs(10));
    let rule = Rule::new("p", [Quota::new(Duration::from_secs(600), 1_000_000)?])?;
    let take = Take::new(Arc::new(rule), Key::from("k"));
    let ask = |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                assert!(store.take(&take).await.is_ok_and(|it| it.is_allowed()));
            }
        });
    };
    ask(CALLS);
    counted(&mut || ask(CALLS));
    println!("{CALLS}");
    Ok(())
}

//! Whether a server can be used, for `tests/ready.sh`: what `ready` says of the address of its
//! first argument, and then how many of twenty requests each algorithm admits of a limit of five.

use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant};

use tidegate::{Algorithm, Key, Quota, RedisStore, Rule, Store, Take};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = args().nth(1).ok_or("an address is expected")?;
    let store = RedisStore::connect_lazy(address)?;
    let began = Instant::now();
    if let Err(error) = store.ready(Duration::from_secs(3)).await {
        let took = began.elapsed().as_millis();
        println!("{:?} after {took} ms: {error}", error.kind());
        return Ok(());
    }
    let mut admitted = Vec::new();
    for algorithm in Algorithm::ALL {
        let rule = Rule::new("calls", [Quota::per_hour(5)])?;
        let take = Take::new(rule.with_algorithm(algorithm).into(), Key::default());
        let mut count = 0;
        for _ in 0..20 {
            count += u32::from(store.take(&take).await?.is_allowed());
        }
        admitted.push(count);
    }
    println!("ready: {admitted:?}");
    Ok(())
}

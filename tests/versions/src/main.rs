//! One process of a fleet, of whichever version this is built against. It uses only what the older
//! versions have, too. `URL play`: each line of its input is a call of `Player`, and each answer a
//! line. `URL load`: its input are the rules and for how many milliseconds to ask, and it prints
//! what was granted.

mod load;
mod player;

use std::sync::Arc;
use std::time::Duration;

use tidegate::test_util::ManualClock;
use tidegate::{Redis, RedisStore, Store};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// So that a machine that is busy is no error.
const PATIENT: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut lines = std::io::stdin().lines();
    if words[1] == "load" {
        let redis = Redis::connect(&*words[0]).await?.timeout(PATIENT);
        let (rules, millis) = (
            lines.next().ok_or("rules")??,
            lines.next().ok_or("a time")??,
        );
        let time = Duration::from_millis(millis.parse()?);
        print!("{}", load::load(&redis, &rules, time).await?);
        return Ok(());
    }
    let clock = ManualClock::default();
    let store = RedisStore::connect(&*words[0]).await?.timeout(PATIENT);
    let store: Arc<dyn Store> = Arc::new(store.clock(clock.clone()));
    let mut player = player::Player::new(store, clock);
    for line in lines {
        let answer = player.play(&line?).await;
        println!(
            "{}",
            answer.unwrap_or_else(|error| format!("error: {error}"))
        );
    }
    Ok(())
}

//! The calls of a [`Lock`].

use super::*;

fn name(number: usize) -> String {
    format!("lock-victim-{number}")
}

fn keys(number: usize) -> Vec<String> {
    let name = name(number);
    vec![name.clone(), format!("redisson_lock_token:{{{name}}}")]
}

/// How many of the locks are held.
fn count(redis: &Redis) -> impl Fn() -> Answer<Vec<i64>> + Send + Sync + 'static {
    let redis = redis.clone();
    move || {
        let redis = redis.clone();
        Box::pin(async move {
            let locks = (0..SPARE).map(|number| Lock::new(&redis, &name(number)));
            let held = join_all(locks.map(|lock| async move { lock.is_locked().await })).await;
            let held = held
                .into_iter()
                .filter(|held| *held.as_ref().expect("an answer"));
            vec![i64::try_from(held.count()).expect("few")]
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Wait {
    No,
    Bounded,
    Unbounded,
}

/// Each call takes a lock of its own, and keeps it.
fn acquiring(client: &Client, wait: Wait) -> Vec<Case> {
    let kept = Arc::<Mutex<Vec<LockGuard>>>::default();
    let ask = move |client: Client, number| -> Answer<_> {
        let (lock, kept) = (Lock::new(&client.redis, &name(number)), Arc::clone(&kept));
        let lock = lock.lease(HOUR);
        Box::pin(async move {
            let guard = match wait {
                Wait::No => lock.try_lock().await?,
                Wait::Bounded => lock.try_lock_for(millis(100)).await?,
                Wait::Unbounded => Some(lock.lock().await?),
            };
            let guard = guard.ok_or_else(|| Failure::Other("held".to_owned()))?;
            kept.lock().expect("no panic").push(guard);
            Ok(())
        })
    };
    let case = Case::new("a free lock", [1], keys, ask, count(&client.redis));
    vec![case.that_gives_back([true])]
}

pub(crate) async fn try_lock(client: &Client) -> Vec<Case> {
    acquiring(client, Wait::No)
}

pub(crate) async fn try_lock_for(client: &Client) -> Vec<Case> {
    acquiring(client, Wait::Bounded)
}

pub(crate) async fn lock(client: &Client) -> Vec<Case> {
    acquiring(client, Wait::Unbounded)
}

/// It only looks at a lock, and at what an owner has of it.
pub(crate) async fn is_locked(client: &Client) -> Vec<Case> {
    let ask = |client: Client, number| -> Answer<_> {
        let lock = Lock::new(&client.redis, &name(0));
        Box::pin(async move {
            match number % 2 {
                0 => is("free", !lock.is_locked().await?),
                _ => is("free", lock.hold_count(&Owner::new()).await? == 0),
            }
        })
    };
    vec![Case::new(
        "a free lock",
        [0],
        keys,
        ask,
        count(&client.redis),
    )]
}

/// Each call takes a lock away from its holder.
pub(crate) async fn force_unlock(client: &Client) -> Vec<Case> {
    let mut guards = Vec::new();
    for number in 0..SPARE {
        let lock = Lock::new(&client.redis, &name(number)).lease(HOUR);
        guards.push(lock.lock().await.expect("free"));
    }
    let ask = move |client: Client, number| -> Answer<_> {
        let (lock, _holders) = (Lock::new(&client.redis, &name(number)), &guards);
        Box::pin(async move { is("taken away", lock.force_unlock().await?) })
    };
    vec![Case::new("a lock", [-1], keys, ask, count(&client.redis))]
}

/// Each call releases a lock of its own.
pub(crate) async fn unlock(client: &Client) -> Vec<Case> {
    let mut guards = Vec::new();
    // It asks again when a reply does not come.
    let client = client.within(Duration::from_secs(1));
    for number in 0..SPARE {
        let lock = Lock::new(&client.redis, &name(number)).lease(HOUR);
        guards.push(Mutex::new(Some(lock.lock().await.expect("free"))));
    }
    let ask = move |_, number: usize| -> Answer<_> {
        let guard = guards[number].lock().expect("no panic").take();
        let guard = guard.expect("one for each call");
        Box::pin(async move { guard.release().await.map_err(Into::into) })
    };
    vec![Case::new("a lock", [-1], keys, ask, count(&client.redis))]
}

/// A lock that is renewed every two seconds goes on through a fault that is shorter than its lease.
pub(crate) async fn renew(client: &Client) -> Vec<Case> {
    const LEASE: Duration = Duration::from_secs(6);
    let lock = Lock::new(&client.redis, &name(0)).lease(LEASE);
    let guard = Arc::new(lock.lock().await.expect("free"));
    let ask = move |_, _| -> Answer<_> {
        let guard = Arc::clone(&guard);
        Box::pin(async move {
            tokio::time::sleep(LEASE / 3 + millis(200)).await;
            is("held", guard.is_held())
        })
    };
    vec![Case::new("a lock", [0], |_| keys(0), ask, count(&client.redis)).slow()]
}

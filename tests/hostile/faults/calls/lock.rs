//! The calls of a [`Lock`].

use super::*;

fn name(number: usize) -> String {
    format!("lock-victim-{number}")
}

fn keys(number: usize) -> Vec<String> {
    let name = name(number);
    vec![name.clone(), format!("redisson_lock_token:{{{name}}}")]
}

/// A call of locks, of which it counts how many are held.
fn case<F: Future<Output = Told> + Send + 'static>(
    client: &Client,
    name: &str,
    adds: i64,
    ask: impl Fn(Client, usize) -> F + Send + Sync + 'static,
) -> Case {
    let redis = client.redis.clone();
    let count = move || {
        let locks = (0..SPARE).map(|number| Lock::new(&redis, &self::name(number)));
        let held = join_all(locks.map(async |lock| lock.is_locked().await.expect("an answer")));
        async move { vec![held.await.into_iter().map(i64::from).sum()] }
    };
    Case::new(name, [adds], keys, ask, count)
}

/// One lock for each call, and who holds it.
async fn held(client: &Client) -> Vec<Mutex<Option<LockGuard>>> {
    let mut guards = Vec::new();
    for number in 0..SPARE {
        let lock = Lock::new(&client.redis, &name(number)).lease(HOUR);
        guards.push(Mutex::new(Some(lock.lock().await.expect("free"))));
    }
    guards
}

/// Each call takes a lock of its own in this way, and keeps it.
fn acquiring<F: Future<Output = Result<Option<LockGuard>, LockError>> + Send + 'static>(
    client: &Client,
    take: impl Fn(Lock) -> F + Send + Sync + 'static,
) -> Vec<Case> {
    let kept = Arc::<Mutex<Vec<LockGuard>>>::default();
    let ask = move |client: Client, number| {
        let taken = take(Lock::new(&client.redis, &name(number)).lease(HOUR));
        let kept = Arc::clone(&kept);
        async move {
            let guard = taken.await?;
            let guard = guard.ok_or_else(|| Failure::Other("held".to_owned()))?;
            kept.lock().expect("no panic").push(guard);
            Ok(())
        }
    };
    vec![case(client, "a free lock", 1, ask).that_gives_back([true])]
}

pub(crate) async fn try_lock(client: &Client) -> Vec<Case> {
    acquiring(client, |lock| async move { lock.try_lock().await })
}

pub(crate) async fn try_lock_for(client: &Client) -> Vec<Case> {
    acquiring(client, |lock| async move {
        lock.try_lock_for(millis(100)).await
    })
}

pub(crate) async fn lock(client: &Client) -> Vec<Case> {
    acquiring(client, |lock| async move { lock.lock().await.map(Some) })
}

/// It only looks at a lock, and at what an owner has of it.
pub(crate) async fn is_locked(client: &Client) -> Vec<Case> {
    let ask = |client: Client, number| {
        let lock = Lock::new(&client.redis, &name(0));
        async move {
            match number % 2 {
                0 => is("free", !lock.is_locked().await?),
                _ => is("free", lock.hold_count(&Owner::new()).await? == 0),
            }
        }
    };
    vec![case(client, "a free lock", 0, ask)]
}

/// Each call takes a lock away from its holder.
pub(crate) async fn force_unlock(client: &Client) -> Vec<Case> {
    let guards = held(client).await;
    let ask = move |client: Client, number| {
        let (lock, _holders) = (Lock::new(&client.redis, &name(number)), &guards);
        async move { is("taken away", lock.force_unlock().await?) }
    };
    vec![case(client, "a lock", -1, ask)]
}

/// Each call releases a lock of its own.
pub(crate) async fn unlock(client: &Client) -> Vec<Case> {
    // It asks again when a reply does not come.
    let guards = held(&client.within(Duration::from_secs(1))).await;
    let ask = move |_, number: usize| {
        let guard = guards[number].lock().expect("no panic").take();
        let guard = guard.expect("one for each call");
        async move { Ok(guard.release().await.map(drop)?) }
    };
    vec![case(client, "a lock", -1, ask)]
}

/// A lock that is renewed every two seconds goes on through a fault that is shorter than its lease.
pub(crate) async fn renew(client: &Client) -> Vec<Case> {
    const LEASE: Duration = Duration::from_secs(6);
    let lock = Lock::new(&client.redis, &name(0)).lease(LEASE);
    let guard = Arc::new(lock.lock().await.expect("free"));
    let ask = move |_, _| {
        let guard = Arc::clone(&guard);
        async move {
            tokio::time::sleep(LEASE / 3 + millis(200)).await;
            is("held", guard.is_held())
        }
    };
    let mut renewed = case(client, "a lock", 0, ask).slow();
    renewed.keys = Box::new(|_| keys(0));
    vec![renewed]
}

//! Callers of all kinds, each of whom recognises an answer that is another caller's.

use super::*;

/// One kind of question. Callers of one kind have different numbers, and hear different answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A take of a key whose count lies far from all others.
    Take,
    /// Takes of a hundred such keys at once.
    Slice,
    /// What is charged under a key that nobody else asks for.
    Peek,
    /// A take of a key that is used up.
    SpentTake,
    /// The refund of a cost that only this caller has.
    Refund,
    /// A reset, and whether all is forgotten.
    Reset,
    /// A permit of a limiter that is used up.
    UsedUp,
    /// A permit of a limiter that has plenty.
    Plenty,
    /// Permits of a number that only this caller has, and their release.
    GiveBack,
    /// The available permits of a limiter that nobody else asks.
    Available,
    /// A rate that no other limiter has.
    RateOf,
    /// Whether there is such a limiter; it is so for every second caller.
    Exists,
    /// A lock that another process holds.
    HeldLock,
    /// A lock that nobody else wants.
    FreeLock,
    /// Whether a lock is held, and for how long.
    Look,
    /// The holds of an owner; every owner has another number of them.
    Holds,
}

impl Kind {
    pub(super) const TAKES: [Self; 6] = {
        use Kind::{Peek, Refund, Reset, Slice, SpentTake};
        [Self::Take, Slice, Peek, SpentTake, Refund, Reset]
    };
    pub(super) const LIMITERS: [Self; 6] = {
        use Kind::{Available, Exists, GiveBack, Plenty, RateOf, UsedUp};
        [UsedUp, Plenty, GiveBack, Available, RateOf, Exists]
    };
    pub(super) const LOCKS: [Self; 4] = {
        use Kind::{FreeLock, HeldLock, Holds, Look};
        [HeldLock, FreeLock, Look, Holds]
    };

    pub(super) fn all() -> Vec<Self> {
        [&Self::TAKES[..], &Self::LIMITERS, &Self::LOCKS].concat()
    }
}

/// Why a question has no right answer.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// No answer, and an error that says so.
    Failed(#[expect(dead_code, reason = "shown when a test fails")] String),
    /// An answer that cannot be this caller's.
    Wrong(#[expect(dead_code, reason = "shown when a test fails")] String),
}

impl<E: Error> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

type Outcome = Result<(), Trouble>;

fn expect(is_right: bool, what: impl FnOnce() -> String) -> Outcome {
    match is_right {
        true => Ok(()),
        false => Err(Trouble::Wrong(what())),
    }
}

const MAX: u64 = 100_000_000;
/// So far apart lie the counts of two keys.
const APART: u64 = 50_000;
const KEYS: u64 = 100;
/// How many callers of one kind there are at most.
const CALLERS: u64 = 4;

/// One process behind the proxy, and another one that is not: it prepares what is asked for, and
/// tells what is true.
pub(super) struct World {
    /// The first one is that whose flights are broken.
    pub(super) proxies: Arc<[Proxy]>,
    pub(super) redis: Redis,
    /// Another process.
    pub(super) other: Redis,
    store: RedisStore,
    owned: Vec<Take>,
    owners: Vec<Owner>,
    /// What the names of all that belongs to it begin with.
    pub(super) label: String,
    loads: AtomicU64,
    _guards: Vec<LockGuard>,
}

/// Connects, however busy the machine is.
pub(super) async fn connected(url: &str) -> Redis {
    let began = Instant::now();
    loop {
        match Redis::connect(url).await {
            Ok(redis) => return redis,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(30), "{error}"),
        }
    }
}

impl World {
    pub(super) async fn new(server: &Server, label: &str) -> Self {
        let proxy = Proxy::start_with_flights(&server.url).await;
        let url = proxy.url.clone();
        Self::over(vec![proxy], &url, &server.url, label).await
    }

    /// The process reaches its servers by `url`, which leads through the proxies; the other one
    /// reaches them by `beside`.
    pub(super) async fn over(proxies: Vec<Proxy>, url: &str, beside: &str, label: &str) -> Self {
        let redis = connected(url).await.timeout(TIMEOUT);
        let other = handle(beside).await;
        let mut world = Self::bare(proxies.into(), redis, other, label);
        world.charge().await;
        world.stock().await;
        world.lock().await;
        world
    }

    /// The same names for a new handle of the process.
    pub(super) fn moved(&self, proxy: Proxy, redis: Redis) -> Self {
        let redis = redis.timeout(TIMEOUT);
        let other = self.other.clone();
        let mut world = Self::bare(vec![proxy].into(), redis, other, &self.label);
        world.owned.clone_from(&self.owned);
        world
    }

    /// One for which nothing is prepared.
    fn bare(proxies: Arc<[Proxy]>, redis: Redis, other: Redis, label: &str) -> Self {
        Self {
            proxies,
            store: RedisStore::of(&redis).timeout(TIMEOUT),
            redis,
            other,
            owned: Vec::new(),
            owners: (0..CALLERS).map(|_| Owner::new()).collect(),
            label: label.to_owned(),
            loads: AtomicU64::new(0),
            _guards: Vec::new(),
        }
    }

    /// Connections through the proxies so far.
    pub(super) fn accepted(&self) -> usize {
        self.proxies.iter().map(Proxy::accepted).sum()
    }

    /// Rounds that no load of this world has had before: their names are fresh.
    pub(super) fn next_rounds(&self) -> impl Iterator<Item = u64> + use<> {
        1_000_000 * self.loads.fetch_add(1, Ordering::Relaxed)..
    }

    fn name(&self, kind: &str, at: u64) -> String {
        format!("{}-{kind}-{at}", self.label)
    }

    fn rule(&self, kind: &str, max: u64) -> Arc<Rule> {
        rule(&format!("{}-{kind}", self.label), max, HOUR)
    }

    /// The store of the other process.
    fn store_beside(&self) -> RedisStore {
        RedisStore::of(&self.other).timeout(PATIENT)
    }

    async fn charge(&mut self) {
        let (owned, beside) = (self.rule("owned", MAX), self.store_beside());
        self.owned = (0..KEYS).map(|key| take(&owned, key)).collect();
        let ahead = self.owned.iter().enumerate();
        let ahead = ahead.map(|(at, take)| take.clone().with_cost(at as u64 * APART));
        let mut takes: Vec<_> = ahead.collect();
        for at in 0..CALLERS {
            takes.push(self.shown(at).with_cost(shown(at)));
            takes.push(self.spent(at).with_cost(10));
        }
        kit::ask_all(&beside, &takes).await.expect("decisions");
    }

    fn shown(&self, at: u64) -> Take {
        take(&self.rule("shown", MAX), at)
    }

    fn spent(&self, at: u64) -> Take {
        take(&self.rule("spent", 10), at)
    }

    async fn stock(&self) {
        for at in 0..CALLERS {
            self.limiter("plenty", at, MAX).await;
            self.limiter("paid", at, MAX).await;
            self.limiter("stock", at, stock(at)).await;
            // Two callers share each of these.
            let used_up = self.limiter("used-up", at / 2, 1).await;
            used_up.try_acquire(1).await.expect("an answer");
        }
    }

    /// So many permits an hour, set by the other process.
    async fn limiter(&self, kind: &str, at: u64, permits: u64) -> RateLimiter {
        let limiter = RateLimiter::new(&self.other, self.name(kind, at));
        let set = limiter.try_set_rate(Rate::overall(permits, HOUR).expect("valid"));
        set.await.expect("an answer");
        limiter
    }

    async fn lock(&mut self) {
        let patient = self.redis.clone().timeout(PATIENT);
        for at in 0..CALLERS {
            let held = Lock::new(&self.other, &self.name("held", at));
            let guard = held.lock_for(HOUR * (at as u32 + 1)).await.expect("free");
            self._guards.push(guard);
            for _ in 0..=at {
                let owned = Lock::new(&patient, &self.name("owned", at));
                let owned = owned.by(&self.owners[at as usize]);
                // A user may not be allowed to.
                self._guards.extend(owned.lock_for(HOUR).await.ok());
            }
        }
    }

    /// The question of this caller, for the `round`-th time.
    pub(super) async fn ask(&self, kind: Kind, at: u64, round: u64) -> Outcome {
        assert!(at < CALLERS);
        let limiter = |name| RateLimiter::new(&self.redis, self.name(name, at));
        match kind {
            Kind::Take => {
                let own = at + round % 20 * CALLERS;
                let answer = self.store.take(&self.owned[own as usize]).await?;
                is_owned(own, &answer)
            }
            Kind::Slice => {
                let answers = kit::ask_all(&self.store, &self.owned).await?;
                let what = || format!("{} answers", answers.len());
                expect(answers.len() as u64 == KEYS, what)?;
                let mut answers = answers.iter().enumerate();
                answers.try_for_each(|(own, answer)| is_owned(own as u64, answer))
            }
            Kind::Peek => {
                let answer = self.store.peek(&self.shown(at)).await?;
                let spent = MAX - answer.remaining();
                let what = || format!("told {spent} of {}", shown(at));
                expect(spent == shown(at), what)
            }
            Kind::SpentTake => {
                let answer = self.store.take(&self.spent(at)).await?;
                let denied = !answer.is_allowed() && answer.remaining() == 0;
                expect(denied, || format!("it is used up: {answer:?}"))
            }
            Kind::Refund => self.refund(at, round).await,
            Kind::Reset => self.reset(at, round).await,
            Kind::UsedUp => {
                let limiter = RateLimiter::new(&self.redis, self.name("used-up", at / 2));
                let granted = limiter.try_acquire(1).await?;
                expect(!granted, || "granted, and it is used up".into())
            }
            Kind::Plenty => {
                let granted = limiter("plenty").try_acquire(at + 1).await?;
                expect(granted, || "denied, and there is plenty".into())
            }
            Kind::GiveBack => {
                let permits = at * 100 + round % 10 + 2;
                let permit = limiter("paid").try_acquire_permit(permits).await?;
                let Ok(permit) = permit else {
                    return Err(Trouble::Wrong("denied, and there is plenty".into()));
                };
                let back = permit.release().await?;
                let what = || format!("{back} came back, and not {permits}");
                expect(back == permits, what)
            }
            Kind::Available => {
                let available = limiter("stock").available_permits().await?;
                let what = || format!("{available} are free, and not {}", stock(at));
                expect(available == stock(at), what)
            }
            Kind::RateOf => {
                let rate = limiter("stock").stored_rate().await?;
                let permits = rate.as_ref().map(Rate::permits);
                expect(permits == Some(stock(at)), || format!("{rate:?}"))
            }
            Kind::Exists => {
                let name = ["stock", "none"][at as usize % 2];
                let exists = limiter(name).exists().await?;
                let what = || format!("{name}: {exists}");
                expect(exists == at.is_multiple_of(2), what)
            }
            Kind::HeldLock => {
                let held = Lock::new(&self.redis, &self.name("held", at));
                let guard = held.try_lock().await?;
                expect(guard.is_none(), || format!("another has it: {guard:?}"))
            }
            Kind::FreeLock => self.free_lock(at, round).await,
            Kind::Look => self.look(at, round).await,
            Kind::Holds => {
                let owned = Lock::new(&self.redis, &self.name("owned", at));
                let holds = owned.hold_count(&self.owners[at as usize]).await?;
                expect(holds == at + 1, || format!("{holds} holds of {}", at + 1))
            }
        }
    }

    async fn refund(&self, at: u64, round: u64) -> Outcome {
        let cost = 11 * (at + 1) + 100 * (round % 7);
        let paid = take(&self.rule("paid", MAX), at).with_cost(cost);
        let charged = self.store_beside().take(&paid).await.expect("a decision");
        let receipt = charged.receipt().expect("it was charged");
        let units = self.store.refund(&paid, &receipt).await?;
        // A call of several refunds that is refused is asked again, one refund at a time. Where a
        // proxy lies that it was refused, the second time finds nothing left to give back.
        let what = || format!("{units} given back, and not {cost}");
        expect(units == cost || units == 0, what)
    }

    async fn reset(&self, at: u64, round: u64) -> Outcome {
        let forgotten = take(&self.rule("forgotten", MAX), format!("{at}-{round}"));
        let beside = self.store_beside();
        let charged = beside.take(&forgotten.clone().with_cost(9)).await;
        charged.expect("a decision");
        self.store.reset(&forgotten).await?;
        let left = beside.peek(&forgotten).await.expect("a decision");
        let what = || format!("not forgotten: {left:?}");
        expect(left.remaining() == MAX, what)
    }

    async fn free_lock(&self, at: u64, round: u64) -> Outcome {
        let name = self.name("free", at) + &format!("-{round}");
        let lock = Lock::new(&self.redis, &name);
        let Some(guard) = lock.try_lock().await? else {
            return Err(Trouble::Wrong("another has it, but nobody wants it".into()));
        };
        let held = self.is_locked(&name).await;
        expect(held || !guard.is_held(), || "a guard without a lock".into())?;
        match guard.release().await {
            Err(error) if error.kind() == LockErrorKind::NotHeld => {
                Err(Trouble::Wrong(format!("we have it: {error}")))
            }
            released => {
                released?;
                let held = self.is_locked(&name).await;
                expect(!held, || "released, and still locked".into())
            }
        }
    }

    /// As the other process sees it.
    async fn is_locked(&self, name: &str) -> bool {
        let locked = Lock::new(&self.other, name).is_locked().await;
        locked.expect("a running server")
    }

    async fn look(&self, at: u64, round: u64) -> Outcome {
        let is_held = at.is_multiple_of(2);
        let lock = self.name(if is_held { "held" } else { "never" }, at);
        let lock = Lock::new(&self.redis, &lock);
        if round.is_multiple_of(2) {
            let locked = lock.is_locked().await?;
            return expect(locked == is_held, || format!("locked: {locked}"));
        }
        let remaining = lock.remaining().await?;
        let hours = remaining.map(|left| left.as_secs() / 3_600);
        let expected = is_held.then_some(at);
        expect(
            hours == expected || remaining == Some(HOUR * (at as u32 + 1)),
            || format!("{remaining:?} of {at} hours"),
        )
    }
}

/// What is charged under the key that is shown to this caller.
fn shown(at: u64) -> u64 {
    1_003 * (at + 1)
}

/// The permits of a limiter that only this caller asks.
fn stock(at: u64) -> u64 {
    1_007 * (at + 1)
}

fn is_owned(own: u64, answer: &Decision) -> Outcome {
    let (spent, ahead) = (MAX - answer.remaining(), own * APART);
    let is_own = answer.is_allowed() && (ahead + 1..ahead + APART).contains(&spent);
    expect(is_own, || format!("{own} was told {spent}: {answer:?}"))
}

/// How long a caller pauses between two questions.
pub(super) const PAUSE: Duration = Duration::from_millis(8);

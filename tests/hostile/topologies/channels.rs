//! Who waits for a lock on a cluster hears of its release at the master that has the lock, wherever
//! that is by now.

use std::future::IntoFuture;

use kit::load::{Load, store, take, until};
use kit::lock_oracle::Ledger;
use kit::process::Process;

use crate::prelude::*;

/// A cluster, and a lock of its first master, which two processes want.
struct Contended {
    cluster: Cluster,
    /// By which `PUBSUB` tells who listens.
    word: &'static str,
    lock: String,
    redis: Redis,
    ours: Lock,
    theirs: Lock,
}

impl Contended {
    async fn start(plan: &Plan) -> Self {
        let cluster = Cluster::start(plan);
        let lock = cluster.key_at(0, "l");
        let url = cluster.url();
        let handles = [kit::handle(&url).await, kit::handle(&url).await];
        let [ours, theirs] = handles.each_ref().map(|redis| Lock::new(redis, &lock));
        let [redis, _] = handles;
        Self {
            cluster,
            word: "SHARDNUMSUB",
            redis,
            lock,
            ours,
            theirs,
        }
    }

    /// How many listen at a node.
    fn listeners(&self, node: usize) -> usize {
        let command = format!(
            "PUBSUB {} redisson_lock__channel:{{{}}}",
            self.word, self.lock
        );
        let (_, listeners): (String, usize) = self.cluster.nodes[node].run(&command);
        listeners
    }

    /// They have the lock, and we wait for it and listen at this node.
    async fn waiting_at(&self, node: usize) -> (LockGuard, JoinHandle<LockGuard>) {
        let guard = self.theirs.holds().await;
        let ours = self.ours.clone();
        let waiting = tokio::spawn(async move { ours.holds().await });
        until("it listens there", || self.listeners(node) == 1).await;
        (guard, waiting)
    }

    /// A few releases each wake the waiter. If it asked by itself, each would take a second.
    async fn passes(&self, node: usize) {
        let began = Instant::now();
        for _ in 0..5 {
            let (guard, waiting) = self.waiting_at(node).await;
            frees(guard).await;
            frees(waiting.await.expect("no panic")).await;
        }
        let took = began.elapsed();
        assert!(took < millis(2_500), "nobody is woken: {took:?}");
    }

    /// The waiter listens at this node within a second, and hears what happens there.
    async fn follows(&self, guard: LockGuard, waiting: JoinHandle<LockGuard>, to: usize) {
        let moved = Instant::now();
        until("it listens there", || self.listeners(to) == 1).await;
        let (took, freed) = (moved.elapsed(), Instant::now());
        frees(guard).await;
        frees(waiting.await.expect("no panic")).await;
        println!(
            "listens after {took:?}, has the lock {:?} later",
            freed.elapsed()
        );
        assert!(took < SECOND, "{took:?}");
        self.passes(to).await;
    }
}

/// The slot goes from master to master, and those who ask its masters for something else notice
/// nothing: the server ends subscriptions in that slot without being asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves() {
    let contended = Contended::start(&Plan::default()).await;
    let cluster = &contended.cluster;
    contended.passes(0).await;
    // Over the connections of the one who waits.
    let store = RedisStore::of(&contended.redis);
    let paths = [0, 1].map(|master| cluster.path_at(master, "p"));
    let loads = paths.map(|path| Load::patient(&store, &take(&path, 1_000_000), 4));
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (guard, waiting) = contended.waiting_at(from).await;
        cluster.move_slot(cluster.slot(&contended.lock), from, to);
        contended.follows(guard, waiting, to).await;
        assert_eq!(contended.listeners(from), 0);
    }
    for load in loads {
        load.stop().await.assert_no_failure();
    }
}

/// A replica takes over, at the command of an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_promoted() {
    let contended = Contended::start(&Plan::with_replicas()).await;
    for (from, to) in [(0, 3), (3, 0)] {
        let (guard, waiting) = contended.waiting_at(from).await;
        contended.cluster.promote(to).await;
        contended.follows(guard, waiting, to).await;
    }
}

/// Its master dies, and comes back at the same place with what it has written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies() {
    for _ in 0..3 {
        let mut contended = Contended::start(&Plan::with_replicas()).await;
        let (guard, waiting) = contended.waiting_at(0).await;
        sleep(millis(100)).await;
        let died = Instant::now();
        contended.cluster.nodes[0].kill();
        contended.cluster.nodes[3].becomes("master").await;
        // A lock gives up after 5 s. A busy machine may not have another master by then.
        if died.elapsed() < millis(4_500) {
            contended.follows(guard, waiting, 3).await;
            contended.cluster.nodes[0].restart();
            contended.cluster.nodes[0].becomes("slave").await;
            return contended.passes(3).await;
        }
    }
    panic!("three times no replica became a master in time");
}

/// Servers before Redis 7.0 have no channels of slots, and users may not be permitted to use them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_channels_of_slots() {
    let mut contended = Contended::start(&Plan::default()).await;
    for node in &contended.cluster.nodes {
        node.run::<()>("ACL SETUSER default -ssubscribe -sunsubscribe -spublish");
    }
    contended.word = "NUMSUB";
    contended.passes(0).await;
    until("it listens no more", || contended.listeners(0) == 0).await;
}

/// Requests that wait for permits hear of them at the master that has these, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_come_back() {
    let cluster = Cluster::start(&Plan::default());
    let paths = ["p0", "p1", "p2", "p3", "p4", "p5"];
    let rules = || paths.map(|path| Rule::with_policies(path, [Policy::concurrent(1)]));
    let rules = || rules().map(|rule| rule.expect("a valid rule"));
    let limits = async || kit::limits(rules(), store(cluster.url()).await);
    let (ours, theirs) = (limits().await, limits().await);
    let listened = || {
        let channels = |node: &Process| node.run::<Vec<String>>("PUBSUB SHARDCHANNELS").len();
        cluster.nodes.iter().map(channels).collect::<Vec<_>>()
    };
    let (began, mut seen) = (Instant::now(), BTreeSet::new());
    for path in paths {
        let held = theirs.check(path, "k").await.expect("it is free");
        let waiting = tokio::spawn(ours.check(path, Key::from("k")).wait(PATIENT).into_future());
        until("it listens", || listened().iter().sum::<usize>() == 1).await;
        seen.insert(listened());
        drop(held);
        drop(waiting.await.expect("no panic").expect("it comes back"));
        until("it listens no more", || listened() == [0; 3]).await;
    }
    let took = began.elapsed();
    assert!(took < millis(2_500), "nobody is woken: {took:?}");
    assert!(seen.len() > 1, "at several masters: {seen:?}");
}

/// Slots move and replicas take over under contention: never two holders, and the lock never lies
/// free for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contended_while_it_moves() {
    let contended = Contended::start(&Plan::with_replicas()).await;
    let seconds = from_env("TIDEGATE_MOVING_SECONDS", 6);
    let (ledger, until) = (Ledger::default(), Instant::now() + seconds * SECOND);
    // Since when the lock is free, with all its keys at one master; and for how long at most.
    let free = Arc::new(Mutex::new((None::<Instant>, Duration::ZERO)));
    let tasks = (0..8).map(|at| {
        let lock = [&contended.ours, &contended.theirs][at % 2].clone();
        let (ledger, free) = (ledger.clone(), Arc::clone(&free));
        tokio::spawn(async move {
            while Instant::now() < until {
                let guard = lock.holds().await;
                ledger.enter(&guard);
                {
                    let (since, longest) = &mut *free.lock().expect("no panic");
                    *longest = since.map_or(*longest, |it| it.elapsed().max(*longest));
                    *since = None;
                }
                sleep(millis(1)).await;
                ledger.leave();
                free.lock().expect("no panic").0 = Some(Instant::now());
                frees(guard).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let cluster = &contended.cluster;
    let (slot, mut at, mut changes) = (cluster.slot(&contended.lock), 0, 0);
    while Instant::now() < until {
        // Which of its two servers a master is by now.
        let server = |at: usize| at + 3 * usize::from(!cluster.is_master(at));
        match changes % 2 {
            0 => {
                let to = (at + 1) % 3;
                cluster.move_slot(slot, server(at), server(to));
                at = to;
            }
            _ => cluster.promote((server(at) + 3) % 6).await,
        }
        // Meanwhile the cluster refused all calls at times.
        if let Some(since) = &mut free.lock().expect("no panic").0 {
            *since = Instant::now();
        }
        changes += 1;
        sleep(millis(500)).await;
    }
    kit::done(tasks).await;
    let longest = free.lock().expect("no panic").1;
    println!(
        "{changes} changes, {} holds, free for {longest:?} at most",
        ledger.entries()
    );
    assert!(changes > seconds / 3, "{changes}");
    assert!(longest < millis(1_200) + SECOND, "{longest:?}");
}

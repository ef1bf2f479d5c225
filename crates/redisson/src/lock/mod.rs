//! Locks that the whole fleet shares, on one Redis server.
//!
//! A [`Lock`] has at most one holder at a time, for as long as its lease lasts. Redis frees the
//! lock by itself when its holder has crashed. While the [`LockGuard`] lives, a background task
//! renews the lease. Around a handler, a rule with
//! `max-concurrent = 1` does the same.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::Redis;
//! use tidegate::lock::Lock;
//!
//! # async fn write_report(_: u64) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = Redis::connect("redis://127.0.0.1:6379").await?;
//! let lock = Lock::new(&redis, "report").lease(Duration::from_secs(10));
//!
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(2)).await? {
//!     tokio::select! {
//!         done = write_report(guard.fencing_token()) => done?,
//!         () = guard.lost() => return Err("Redis was away for longer than the lease".into()),
//!     }
//!     guard.release().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What a lock promises
//!
//! As long as Redis keeps its data, and clocks run at about the same speed:
//!
//! - While [`LockGuard::is_held`] is true, no other holder has the lock. The process counts a lease
//!   from before the request was sent, Redis from after.
//! - A call whose reply was lost counts once, however often it is repeated. A future that is
//!   dropped, or that fails without a reply, leaves no lock behind: a background task releases it.
//! - A holder that has lost the lock cannot release it, renew it, or change the next holder's
//!   lease.
//! - [Fencing tokens](LockGuard::fencing_token) rise from holder to holder. They rise also after
//!   Redis has lost its data, unless its clock goes back at the same time.
//! - A caller's first call is sent immediately, and acquires the lock if it is free. Denied callers
//!   wait: those of one process are served in the order of their arrival, and one of them asks for
//!   all. A release wakes the first of them. If the message of a release is lost, or the first of
//!   them is kept and no longer polled, they ask once a second.
//! - Processes take turns. A process that has held the lock 16 times in a row, or for 10 ms, while
//!   others wait leaves it to them until each may have had as many holds. If nobody takes the lock
//!   for 5 ms, the process goes on. A caller asks immediately, regardless of turns, if it tries
//!   once, if its deadline comes before the end of the turn, or if its owner holds the lock
//!   already.
//! - An owner that holds the lock never waits behind callers that wait for its release.
//! - When a guard is dropped, its release is queued before any later call of the process, and sent
//!   however slow the process is. At the end of `main`,
//!   [`Redis::flush`](crate::connection::Redis::flush) waits for that.
//!
//! # What no lock with a lease can promise
//!
//! No lease keeps two holders from ever acting at the same time. A process may be paused between
//! looking at its guard and writing: a virtual machine is moved, a laptop sleeps, a thread waits
//! for a processor, a write is slow on the network. When the process goes on, its lease may be
//! over, another process may hold the lock, and the first one does not know. A lock also cannot
//! outlive its server:
//!
//! - Redis replicates after it has answered. A lock that was acquired just before a failover is
//!   unknown to the new master, which grants it to the next caller. The same holds for a server
//!   that restarts with older data.
//! - If the clock of the server jumps ahead, leases end early.
//! - `FLUSHALL`, an eviction policy that takes keys with an expiry (`volatile-*`, `allkeys-*`), or
//!   a client that deletes the key frees the lock. The holder notices with its next renewal, within
//!   a third of the lease.
//!
//! So use a lock where doing something twice is a waste but no disaster: one worker for a job, one
//! refresh of a cache. Where two writers would be a disaster, the lock keeps
//! them apart nearly always, and the resource itself has to refuse the writer that comes late. The
//! fencing token makes that possible: the resource remembers the highest token that it has seen,
//! and refuses lower ones. In SQL:
//!
//! ```sql
//! UPDATE report SET body = $1, token = $2 WHERE id = $3 AND token <= $2
//! -- no row was updated: another process has held the lock since
//! ```
//!
//! In Rust, for a resource that checks by itself:
//!
//! ```
//! struct Report {
//!     text: String,
//!     highest_token: u64,
//! }
//!
//! impl Report {
//!     /// Returns whether the text was written: not if the lock had a later holder.
//!     fn write(&mut self, token: u64, text: &str) -> bool {
//!         if token < self.highest_token {
//!             return false;
//!         }
//!         self.highest_token = token;
//!         self.text = text.to_owned();
//!         true
//!     }
//! }
//!
//! let mut report = Report { text: String::new(), highest_token: 0 };
//! assert!(report.write(34, "by the current holder"));
//! assert!(!report.write(33, "by an earlier holder"));
//! ```
//!
//! # Keys in Redis
//!
//! | key | value |
//! |---|---|
//! | the name of a lock | a hash: `<process>:<owner>`, and how often it holds the lock; expires with the lease |
//! | `redisson_lock__channel:{name}` | the channel: a message `0` says that the lock is free |
//! | `redisson_lock_token:{name}` | the latest fencing token, for 30 days |
//! | `redisson_unlock_latch:{name}:<request>` | whether a request was granted, released or given up, so that a repeated call counts once; for an owner it lives as long as the lease, and about 10 s after a release |
//!
//! A name that contains braces keeps them: `redisson_lock__channel:{eu}:report`.
//!
//! # Sources
//!
//! The hash, the channel and the latch are those of
//! [Redisson](https://github.com/redisson/redisson)'s `RLock`, and so is the watchdog that renews
//! after a third of the lease. Programs that use Redisson may contend for the same locks; they do
//! not use the tokens. The tokens, and the limits of locks with leases, are from Martin Kleppmann's
//! [How to do distributed
//! locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).

// | what | file |
// |---|---|
// | the lock, its guard and its errors | `lock.rs` |
// | an owner that may hold a lock more than once | `owner.rs` |
// | asks, and waits as long as the caller does | `acquire.rs` |
// | the callers of a process that wait, in the order of their arrival | `wait_queue.rs` |
// | the message that the lock is free, and who hears it | `channel.rs` |
// | how often other processes go first | `fairness.rs` |
// | one request, and its calls to acquire, renew and release | `lease_request.rs` |
// | a lease that is held, and the watchdog that renews it | `held_lease.rs` |
// | the list of the scripts | `scripts.rs`, `lua/lock/` |

mod acquire;
mod channel;
mod fairness;
mod held_lease;
mod lease_request;
mod lock;
mod owner;
mod scripts;
mod wait_queue;

pub use lock::{Lock, LockError, LockErrorKind, LockGuard};
pub use owner::Owner;

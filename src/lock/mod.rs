//! Locks that the whole fleet shares, on one Redis server.
//!
//! A [`Lock`] has at most one holder at a time. What it gives is a lease: Redis frees the lock by itself when its holder
//! has crashed, and a background task of the process renews it while its [`LockGuard`] lives. An
//! [`ExclusiveLayer`] puts the same around a handler.
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
//! # What it promises
//!
//! As long as Redis keeps its data and clocks run at about the same speed:
//!
//! - while [`LockGuard::is_held`] says so, nobody else has the lock: a lease counts here from before it was asked for,
//!   in Redis from after;
//! - a call whose reply was lost counts once, however often it was made; a future that is dropped, or fails without an
//!   answer, leaves no lock behind: it is given back in the background;
//! - who has lost the lock cannot release it, renew it, or otherwise touch that of who has it now;
//! - [fencing tokens](LockGuard::fencing_token) rise from holder to holder, also when Redis has lost its data, as long
//!   as its clock does not go back at the same time;
//! - whoever asks for the first time asks at once, and gets what is free. Those who are refused wait: in one process
//!   they are served in the order of their arrival, one of them asking for all. A release wakes the first of them up;
//!   if that message is lost they ask once a second;
//! - processes take turns: one that has had the lock 16 times in a row, or for 10 ms, while others waited leaves it to
//!   them until each may have had as many. If nobody takes it for 5 ms, it is its own again. Whoever has no time for
//!   that, tries once, or has the lock already asks at once;
//! - an owner never waits behind others who wait for it to release the same lock;
//! - when a guard is dropped, its release is sent before whatever the process asks later.
//!
//! # What no lock with a lease can promise
//!
//! That two holders never act at the same time. A process may stop between looking at its guard and doing what it
//! guards: a virtual machine that is moved, a laptop that sleeps, a thread that waits for its turn, a write that is slow
//! on the network. When it goes on its lease may be over and the lock with somebody else, and it does not know. Nor can a
//! lock outlive its server:
//!
//! - Redis replicates after it has answered. A lock that was taken just before a failover is unknown to the new master,
//!   which gives it to the next one who asks. The same is true of a server that is restarted with data from before.
//! - If the clock of the server jumps ahead, leases end early.
//! - `FLUSHALL`, an eviction policy that takes keys with an expiry (`volatile-*`, `allkeys-*`), or anybody who deletes
//!   the key frees the lock. The holder learns of it with its next renewal, within a third of the lease.
//!
//! So it is good for what should not be done twice, where doing it twice is a waste and not a disaster: one worker on a
//! job, one refresh of a cache, one export at a time. Where two writers would be a disaster, the lock keeps them apart
//! nearly always, and the resource itself has to refuse the one that comes late. It can, by the token: it
//! remembers the highest that it has seen, and takes nothing with a lower one. In SQL:
//!
//! ```sql
//! UPDATE report SET body = $1, token = $2 WHERE id = $3 AND token <= $2
//! -- no row was updated: somebody else has had the lock since
//! ```
//!
//! and in Rust, for a resource that checks by itself:
//!
//! ```
//! struct Report {
//!     text: String,
//!     highest_token: u64,
//! }
//!
//! impl Report {
//!     /// Whether it was written: not by somebody whose lock others have had since.
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
//! assert!(report.write(34, "of who has the lock now"));
//! assert!(!report.write(33, "of who had it before"));
//! ```
//!
//! # What stands in Redis
//!
//! | key | |
//! |---|---|
//! | the name | a hash: `<process>:<owner>` and how often it holds the lock; expires with the lease |
//! | `redisson_lock__channel:{name}` | the channel; a message `0` says that the lock is free |
//! | `redisson_lock_token:{name}` | the latest fencing token, for 30 days |
//! | `redisson_unlock_latch:{name}:<request>` | what became of a request, so that a repeated one counts once: of an owner as long as the lease, and for some 10 s after a release |
//! | the name, of permits | a sorted set: who has one, and until when; expires with the last lease |
//!
//! A name with braces of its own keeps them: `redisson_lock__channel:{eu}:report`.
//!
//! # Where it comes from
//!
//! Hash, channel and latch are those of [Redisson](https://github.com/redisson/redisson)'s `RLock`, and so is the watchdog
//! that renews at a third of the lease: programs that use Redisson may contend for the same locks, though
//! they have no part in the tokens. The tokens, and what can be said against locks with leases, are from Martin
//! Kleppmann's [How to do distributed
//! locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).

mod attempt;
mod background;
mod claim;
mod error;
mod exclusive;
mod guard;
mod held;
mod hold;
mod lease;
mod lock;
mod names;
mod owner;
mod reply;
mod slots;
mod subscriber;
mod target;
mod waiting;
mod watchdog;

pub use error::{LockError, LockErrorKind};
pub use exclusive::{Exclusive, ExclusiveLayer};
pub use guard::LockGuard;
pub use lock::Lock;
pub use owner::Owner;

//! Connections to Redis: addresses, connections that are made again when they break, and the
//! flights in which questions travel.
//!
//! A *node* is one server address. It has a [link] over the client's multiplexed connection, a
//! [reconnector] that replaces a lost or silent link, a [queue] of questions, and a
//! [dispatcher](node) with a few [flights](flight) in progress. A single server is one node. The
//! master that sentinels name is a node whose address changes. A cluster has a node for each
//! master.
//!
//! It knows no takes: stores, limiters and locks ask here. What a question of a store says, and how
//! such questions share calls, is known to its [`FlightMaker`](flight::FlightMaker) alone, which
//! stands with the stores of `tidegate` (`src/store/redis/`). Its order, its bounds, its deadline
//! and where it is sent again are the node's.
//!
//! # The path of a question
//!
//! ```text
//! RedisStore::take         src/store/redis/mod.rs    makes a CountQuestion: names, specs
//!    |
//! Connection::ask          connection.rs             adds the slot and the deadline
//!    |                     question.rs               Question: what waits and travels,
//!    |                                               ReplyFuture: what the caller polls
//!    |
//! Node::enqueue            node.rs                   in a cluster, cluster/mod.rs finds it
//!    |
//! Queue::push              queue.rs                  at most 16,384 wait for a server
//!    |
//!    |    Up to here the caller's task does the work, and awaits nothing. From here on a task
//!    |    of the node does it, and the caller may leave.
//!    |
//!    |    A take that comes alone goes a shorter way: its own future, when it is polled, takes it
//!    |    out of the queue and sends its flight (`direct.rs`).
//!    |
//! Dispatcher::run          node.rs                   two flights in progress, no timer
//!    |                                               up to 1,024 questions a flight
//! Endpoint::fly            flight.rs                 asks the flight maker for the flight
//!    |   flight            src/store/redis/calls.rs  groups the questions into calls, and keeps
//!    |                                               the order of arrival for each count
//!    |   TakeCall          src/store/redis/take_call.rs
//!    |
//! Flight::run              flight.rs                 the commands of the calls
//!    |
//! Link::send               link.rs                   one pipeline over one TCP connection
//!    |
//! the server               lua/                      one script for each algorithm
//!    |
//!    |    The client's task, which has read the replies, does the rest.
//!    |
//! Flight::hand_out         flight.rs                 one reply for each call
//!    |   TakeCall::hand_out                          one reply for each take
//!    |
//! Question::reply          question.rs               wakes the caller
//! ```
//!
//! Refunds and resets of a store go the same way. What limiters and locks ask is a script call of
//! its own ([`CallQuestion`]), and its caller reads the reply.
//!
//! # Beside that path
//!
//! | what | file |
//! |---|---|
//! | connects, watches the link, connects again | `reconnector.rs` |
//! | tells the dispatcher whether there is a link | `LinkState` in `node.rs` |
//! | measures how long a link has been silent or idle, and how long it may be | `silence.rs` |
//! | the first round trip of a link: scripts, clock, role | `link.rs` |
//! | converts deadlines into the server's time | `server_clock.rs` |
//! | proves that replies are not shifted | `call_id.rs` |
//! | what a flight needs to send a question again | `Endpoint` in `node.rs` |
//! | the server to connect to, or the sentinels that know it | `Target` in `reconnector.rs`, `sentinel.rs` |
//! | the nodes of a cluster, and its redirections | `cluster/` |
//! | URLs, logins and certificates; credentials that change | `address/` |
//! | logs in again before credentials end | `session.rs` |
//! | the texts of the scripts | `scripts.rs` |
//! | errors of the client, by what they ask for | `errors.rs` |
//! | hears the messages of channels | `subscriber.rs` |
//!
//! # Who owns what
//!
//! ```text
//! Redis, RedisStore -> Connection -> Node -> Reconnector (task) -> Link
//!                   (Arc, clones)         -> Dispatcher (task)
//!                                         -> Queue
//! ```
//!
//! There are few other tasks: one that makes the calls that no caller waits for, the watcher of a
//! cluster, those of subscribers, short ones that send a redirected question after a pause or close
//! a replaced link, and the client's own, one for each TCP connection. Dropping the last clone of a
//! [`Connection`] drops its nodes, a node aborts its tasks, and a task that ends closes what it
//! owned: the reconnector its link, and with it the flights that travel over it, the dispatcher its
//! queue. Questions that waited then get the error that the runtime has ended, and those that
//! travelled that of a closed connection. A flight in progress has no task and no other owner: it
//! holds itself until its reply has come, or its link is closed.
//!
//! # What holds
//!
//! - A reply comes by its question's deadline: [`ReplyFuture`] has a timer of its own, so it
//!   depends on no task, no link and no server. A process that is late gives that time back: to the
//!   caller's timer, and to questions that were not sent or were refused as late. See
//!   [`Deadline`](crate::deadline::Deadline).
//! - The replies for one key are those of asking in order of arrival, except for questions that
//!   were sent again or travelled over two links. The queue is first in, first out; the flights
//!   over one link are sent in the order in which they were made; the flight maker keeps the order
//!   of its questions inside of a flight.
//! - A question whose caller has left, or whose deadline is over, is dropped when its turn comes,
//!   and never charged. Once sent, a take has its deadline with it, in the server's time: a server
//!   that was paused refuses what is late instead of charging it.
//! - A caller that leaves can know whether its question may have been sent
//!   ([`ReplyFuture::withdrawal`]): what was not sent then is never sent, and nothing has to be
//!   undone.
//! - A question is sent again only when the server has said that it executed nothing of it.
//! - Nothing is sent over a link whose last reply is older than 30 s, by the monotonic or by the
//!   real-time clock, before another reply proves it: this process may have been frozen, and the
//!   network may have forgotten the link.
//! - Whether a link is dead is judged by the link alone. Callers that leave or time out are no
//!   evidence.
//! - No lock is held across an `.await`.
//!
//! # What happens when something fails
//!
//! | failure | the question |
//! |---|---|
//! | an attempt to connect failed | gets that error immediately |
//! | the connection broke after it was sent | gets an error and is not sent again: it may have been executed |
//! | the replies of its flight belong to other calls | gets an error, and the connection is closed |
//! | the server does not know the script | is sent again with the script's text |
//! | a call with several keys was refused because of one key | is sent again in a call of its own |
//! | `MOVED`, `ASK` | is sent again, to the node that was named |
//! | `TRYAGAIN` | is sent again after a pause, to the master of its slot |
//! | late by the server's clock, not by this process's, or because this process was slow | is sent again, with the corrected clock |
//! | the queue is full | gets the error `Overloaded` immediately |
//!
//! Only refused calls are sent again: nothing of them was executed.
//!
//! # What proves that a reply is its own
//!
//! Replies have no names: the client gives each to the request that waits longest. A proxy that
//! loses or adds a reply shifts all that follow on that connection. So nothing is believed because
//! of its form alone: every script repeats the number of its call (`call_id.rs`). A *check* is a
//! script that does nothing else.
//!
//! | question | proof |
//! |---|---|
//! | takes, refunds, resets, calls of limiters and locks | each reply repeats its call's number; the last one stands for the flight |
//! | commands without a script | the check at the end of their flight |
//! | whether a new link executes scripts | the question is a check |
//! | the layout of a cluster, over a link in use | a check behind it |
//! | `SUBSCRIBE` and `UNSUBSCRIBE` | a check behind them |
//! | messages of channels | no replies: each names its channel, and a waiter only asks again |
//! | the handshake of a link | the connection is new, so no earlier reply can be lost. One that is lost ends the attempt by its time limit, one that is added makes the clock or the role unreadable |
//! | sentinels, and the layout over a connection of its own | likewise; then the server must say itself that it is a master |
//!
//! If the last reply of a flight does not fit, no answer of the flight is handed out and the link
//! is replaced. If it is an error of the server, it condemns nothing: errors are handed out as they
//! are, and so are the replies of scripts, which prove themselves. The replies to commands become
//! the error of the check.

mod address;
mod call_id;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod direct;
mod errors;
mod flight;
mod link;
mod node;
mod question;
mod queue;
mod reconnector;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server_clock;
mod session;
mod silence;
mod subscriber;

pub use address::{Credentials, IntoRedisAddress, RedisAddress};
pub use call_id::CallId;
pub use connection::Redis;
pub use connection::{Connection, Wanted};
pub use direct::Driver;
pub use flight::{Carrier, FlightCall, UnsharedCall};
pub use link::RoundTrip;
pub use question::{CallQuestion, Question, ReplyFuture, SendOptions, Withdrawal};
pub use queue::Questions;
pub use scripts::{Library, Script, ScriptList, includes, scripts};
pub use server_clock::ServerClock;
pub use subscriber::{Heard, Subscriber, Subscription, publish_command};

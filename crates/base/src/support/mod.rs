//! Small parts that know neither Redis nor limits: clocks, deadlines, errors, events, locks, and
//! maps. A part stands here only if two folders use it; what only connections use stands in
//! `connection/`.

/// [`Clock`](clock::Clock): a clock of this process, which tests can pause or set.
pub mod clock;
/// [`Deadline`](deadline::Deadline): until when an answer is waited for, also by a process that is
/// late itself.
pub mod deadline;
/// [`KindError`](error::KindError), and the kinds of errors of stores and keys.
pub mod error;
/// [`InFlightCounter`](in_flight_counter::InFlightCounter): counts what is in progress, and limits
/// its number.
pub mod in_flight_counter;
pub mod jitter;
/// [`LogOnChange`](log_on_change::LogOnChange): logs a failure once, and its end.
pub mod log_on_change;
pub mod named;
/// [`read`](regular_file::read): reads a file that has an end.
pub mod regular_file;
/// [`SweptMap`](swept_map::SweptMap): a map that drops what is not needed any more.
pub mod swept_map;
/// [`lock`](sync::lock): locks a mutex, also after a panic. [`OwnedTask`](sync::OwnedTask): a task
/// that ends with its owner.
pub mod sync;
pub mod trace;
/// [`UnawaitedCalls`](unawaited::UnawaitedCalls): calls that no caller waits for.
pub mod unawaited;
/// [`blanked`](unseen::blanked): a text of somebody else, for logs and pages.
pub mod unseen;

//! Rules that follow a file while requests are being served.
//!
//! [`Limits::watch`](crate::Limits::watch) starts a task that reads a file every two seconds and
//! replaces the rules when it has changed. [`Limits::reload`](crate::Limits::reload) does so once,
//! when it is called. [`Limits::status`](crate::Limits::status) tells what became of both.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::Limits;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::time::pause();
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("limits.toml");
//! std::fs::write(&path, "[rules.getId]\nmax-count = 5\nwindow = \"10s\"")?;
//! let limits = Limits::from_file(&path)?;
//! limits.watch(&path)?;
//!
//! std::fs::write(&path, "[rules.getId]\nmax-count = 7\nwindow = \"10s\"")?;
//! tokio::time::sleep(Duration::from_secs(3)).await;
//! assert_eq!(limits.status().version, 2);
//!
//! std::fs::write(&path, "[rules.getId]\nmax-count = many\nwindow = \"10s\"")?;
//! tokio::time::sleep(Duration::from_secs(3)).await;
//! assert_eq!(limits.status().version, 2);
//! let error = limits.status().error.unwrap_or_default();
//! assert!(error.contains("limits.toml:2"), "{error}");
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! - New rules apply from one request to the next: every request is decided by the old rules or by
//!   the new ones, and counts stay.
//! - A change applies only when the file is the same 250 ms after it was first seen. A write that
//!   completes within 200 ms is never seen half. Renamed files, symbolic links that are replaced
//!   and network mounts are noticed, because the content is read every time.
//! - On any error the old rules stay: a mistake in the file, no file, an empty one, no permission,
//!   what is not a regular file, more than 16 MiB. Each error is logged and counted once.
//! - A rule that a layer uses never disappears: while the file lacks it, it stays as it was, but
//!   for what the file says for all rules (`enabled`, `shadow`, `exempt`), is logged, and is listed
//!   by [`ReloadStatus::kept_rules`]. A file that was cut off may be valid with fewer rules. To
//!   switch a rule off, write `enabled = false` into its table.
//! - What parses and stays for 250 ms is an edit, also if its writer is not finished. Write to
//!   another file and rename it if you need more than that.
//! - Rules that code replaced with [`SharedRules::replace`](crate::rule::SharedRules::replace) stay
//!   until the file changes.
//!
//! # When the file system does not answer
//!
//! A reading blocks one thread of the runtime's pool for blocking work, never more than one. After
//! ten seconds it is reported. A runtime that shuts down waits for it, unless it is told
//! [how long](tokio::runtime::Runtime::shutdown_timeout).

// Here stands when a file is read again, and what became of that. `src/config/` reads it, and
// `src/rule/` puts the rules in place of the old ones.

mod file_watcher;
mod reloads;

pub(crate) use file_watcher::FileWatcher;
pub use file_watcher::WatchError;
pub use reloads::ReloadStatus;
pub(crate) use reloads::Reloads;

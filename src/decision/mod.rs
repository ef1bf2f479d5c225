//! What a store answers.
//!
//! ```
//! use tidegate::decision::{Source, Verdict};
//! use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rule = Rule::new("export", [Quota::per_hour(1)])?;
//! let take = Take::new(rule.into(), Key::from("alice"));
//! let store = MemoryStore::new();
//! let allowed = store.take(&take).await?;
//! assert_eq!(allowed.verdict(), Verdict::Allowed);
//! assert_eq!(allowed.source(), Source::Local);
//!
//! let denied = store.take(&take).await?;
//! assert_eq!(denied.remaining(), 0);
//! assert!(denied.quotas()[0].is_exceeded());
//! println!("again in {:?}", denied.retry_after());
//! # Ok(())
//! # }
//! ```

pub(crate) mod decision;
mod receipt;

pub(crate) use decision::Decision;
pub use decision::{QuotaState, Source, Verdict};
pub use receipt::Receipt;

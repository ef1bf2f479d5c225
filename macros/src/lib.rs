//! The attribute `#[limited]` of the crate `tidegate`, which has it with the feature `macros`.
//! Use it from there: what it expands to belongs to the same version of that crate.

mod arguments;
mod expansion;
mod item;
mod returned;

use proc_macro::TokenStream;

/// Limits an async function, an async method, or all async methods of an impl block.
///
/// ```
/// use tidegate::layer::Refused;
/// use tidegate::{Denied, Failed, Limits, Quota, Rule, limited};
///
/// #[derive(Debug)]
/// struct User { id: u64 }
///
/// /// Each user may export once per hour.
/// #[limited("export", key = user.id)]
/// async fn export(user: User) -> Result<String, Refused> {
///     Ok(format!("all of {user:?}"))
/// }
///
/// /// It answers everybody: with nothing in place of a denial, or of a failure.
/// #[limited("export", key = user.id, degrade = nothing_new, on_error = busy)]
/// async fn lines(user: &User) -> usize {
///     7
/// }
///
/// async fn nothing_new(denied: Denied) -> usize {
///     0
/// }
///
/// async fn busy(failed: Failed) -> usize {
///     eprintln!("{failed}");
///     0
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// Limits::new([Rule::new("export", [Quota::per_hour(1)])?]).install();
/// assert!(export(User { id: 1 }).await.is_ok());
/// assert!(export(User { id: 1 }).await.is_err());
/// assert_eq!(lines(&User { id: 1 }).await, 0);
/// assert_eq!(lines(&User { id: 2 }).await, 7);
/// # Ok(())
/// # }
/// ```
///
/// # Arguments
///
/// The first one is the path of the rule. The others have names. Their values are expressions that
/// may use the function's arguments and `self`:
///
/// | argument | what it is | without it |
/// |---|---|---|
/// | the path | a text | an error |
/// | `key` | who is counted: a key, keys by the subjects of a joint rule, or `Everyone`. A place such as `user.id`, `ids[0]` or `*id` is borrowed, other values are moved | an error |
/// | `limits` | the `Limits`, of an argument or a field such as `self.limits` | `Limits::installed()` |
/// | `cost` | a `u64`: how many units | the cost of the rule |
/// | `plan` | a text: the plan of the rule | none |
/// | `plan_value` | a `Plan`, or an `Option` of one: what a customer bought, from a table | none |
/// | `wait` | a `Duration`: how long it may wait where it is denied | it does not wait |
/// | `degrade` | an async function of `Denied` that returns what the function returns | the refusal is converted |
/// | `on_error` | the same of `Failed`, where there is no decision, and the rule does not proceed; only beside `degrade` | the refusal is converted |
/// | `on_error_chain` | an `ErrorCallbackChain`, such as a `LazyLock` or a field; it comes before `on_error` | none |
/// | `crate` | the path of the crate `tidegate`, if it has another name | `::tidegate` |
///
/// The function finds what it was charged in `tidegate::store::Charges::current()`.
///
/// # What becomes of a refusal
///
/// With `degrade` and `on_error` one of them answers, and the function may return any type.
/// Otherwise what no callback has answered is converted, by what the function returns:
///
/// | it returns | a refusal becomes |
/// |---|---|
/// | a type whose last name is `Result`, which has to be the standard library's | `Err`; the error is `From<Refused>` |
/// | `impl IntoResponse` | its response, and the function's value becomes a response, too. Callbacks return a `Response` |
/// | another type, such as `Response` | that type, which is `From<Refused>` |
///
/// `Result<impl Trait, E>` stays hidden, and cannot have callbacks: they could not name it.
///
/// # Impl blocks
///
/// On an impl block it limits each async method. Those that have a `#[limited]` of their own, by
/// this name, are limited by that alone. It stands above `#[async_trait]`, which takes the `async`
/// away:
///
/// ```
/// use async_trait::async_trait;
/// use tidegate::{Denied, Failed, Limits, Quota, Rule, limited};
///
/// #[async_trait]
/// trait Reports {
///     async fn report(&self, id: u64) -> Result<String, Status>;
///     async fn lines(&self) -> Result<Vec<String>, Status>;
/// }
///
/// struct Service { limits: Limits, user: String }
///
/// #[limited("api", key = self.user, limits = self.limits, degrade = denied, on_error = failed)]
/// #[async_trait]
/// impl Reports for Service {
///     async fn report(&self, id: u64) -> Result<String, Status> {
///         Ok(format!("report {id}"))
///     }
///     async fn lines(&self) -> Result<Vec<String>, Status> {
///         Ok(Vec::new())
///     }
/// }
///
/// /// Of another crate, such as tonic: it cannot be `From<Refused>`, so callbacks make it.
/// enum Status { Exhausted, Unavailable }
///
/// async fn denied<T>(_: Denied) -> Result<T, Status> {
///     Err(Status::Exhausted)
/// }
///
/// async fn failed<T>(_: Failed) -> Result<T, Status> {
///     Err(Status::Unavailable)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("api", [Quota::per_minute(1)])?]);
/// let service = Service { limits, user: "alice".into() };
/// assert!(service.report(1).await.is_ok());
/// assert!(matches!(service.lines().await, Err(Status::Exhausted)));
/// # Ok(())
/// # }
/// ```
///
/// # What it expands to
///
/// The function keeps its signature. Its body becomes a call, so it can be written by hand, too:
///
/// ```
/// use tidegate::layer::{CallError, Refused};
/// use tidegate::{Limits, limited};
///
/// #[limited("export", key = user, limits = limits, cost = 2)]
/// async fn export(limits: &Limits, user: String) -> Result<String, Refused> {
///     Ok(user)
/// }
///
/// async fn by_hand(limits: &Limits, user: String) -> Result<String, Refused> {
///     let call = Limits::call(&limits, &"export").key(&user).cost(2);
///     call.try_run(async move || Ok(user)).await.map_err(CallError::flatten)
/// }
/// # let _ = (export, by_hand);
/// ```
///
/// The arguments are evaluated before the body runs, or moves anything. The body moves what it uses,
/// so a callback that needs `self` is a function of its own, or a closure under `&self`. The future is `Send` where
/// the body and the callbacks are.
///
/// # Errors
///
/// These are errors of the compiler, each at its place: a function that is not async, an impl block
/// without an async method, an argument that is unknown, repeated or missing, a hidden return type
/// that nothing can be made of, and a type that is not `From<Refused>`.
#[proc_macro_attribute]
pub fn limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = item::expand(arguments.into(), item.clone().into());
    expanded.map_or_else(
        |error| {
            [error.into_compile_error().into(), item]
                .into_iter()
                .collect()
        },
        TokenStream::from,
    )
}

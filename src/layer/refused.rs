use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum_core::response::{IntoResponse, Response};
use http::Request;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;

use super::action::{Refusal, marked};
use super::gate::Gate;
use crate::callback::{
    AnswerForm, Cause, Denied, Failed, GrpcCall, Recovery, RetryAfter, internal_error, recover,
};
use crate::charge::LayerResponse;
use crate::decision::{Decision, Source};
use crate::error::{KeyError, StoreError};
use crate::rule::Rule;

/// The answer to a [check](crate::Limits::check) or a [call](crate::Limits::call) that may not go
/// on: it was denied, or the store gave no decision, or the [key](super::SubjectKeys) of a subject
/// is missing.
///
/// It is an axum response: the problem document and the fields that a layer without callbacks
/// answers with; [`answer`](Self::answer) asks the application's callbacks. Its text
/// tells a client no more than these; [`error`](Refused::error) is for the log.
///
/// ```
/// use tidegate::layer::Refused;
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(0)])?]);
/// let refused: Refused = limits.check("chat", "alice").await.unwrap_err();
/// assert!(refused.decision().is_some(), "it was denied");
/// assert!(refused.retry_after().is_none(), "no wait helps");
/// assert_eq!(refused.to_string(), "the limit of chat is used up");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Refused(Box<Refusing>);

#[derive(Clone)]
struct Refusing {
    rule: Arc<Rule>,
    refusal: Refusal,
    gate: Arc<Gate>,
}

impl Refused {
    pub(super) fn new(rule: Arc<Rule>, refusal: Refusal, gate: Arc<Gate>) -> Self {
        Self(Box::new(Refusing {
            rule,
            refusal,
            gate,
        }))
    }

    /// The rule that was asked about.
    #[must_use]
    pub fn rule(&self) -> &Arc<Rule> {
        &self.0.rule
    }

    /// The decision that denied it; `None` if the store gave none.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.0.refusal {
            Refusal::Denied(_, decision) => Some(decision),
            Refusal::Failed(..) => None,
        }
    }

    /// Why the store gave no decision; `None` if it was denied.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        match &self.0.refusal {
            Refusal::Failed(_, Cause::Store(error, _)) => Some(error),
            _ => None,
        }
    }

    /// What is wrong with the [keys](super::SubjectKeys) that the check was given: those of a
    /// [joint](Rule::joint) rule's subjects. `None` if it was denied, or the store failed.
    #[must_use]
    pub fn key_error(&self) -> Option<&KeyError> {
        match &self.0.refusal {
            Refusal::Failed(_, Cause::Key(error)) => Some(error),
            _ => None,
        }
    }

    /// When the same question would be allowed; `None` where no wait helps, or nobody knows. Where
    /// [as many run as may](Decision::is_busy) it is a hint.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }

    /// What a degrade callback gets, if it was denied. The [head](Denied::head) of its request is
    /// an empty one.
    ///
    /// # Errors
    ///
    /// Itself, where there is no decision.
    pub fn into_denied(self) -> Result<Denied, Self> {
        match self.0.refusal {
            Refusal::Denied(take, decision) => Ok(Denied::new(take, decision, no_head())),
            Refusal::Failed(..) => Err(self),
        }
    }

    /// What these callbacks return: `degrade` where it was denied, `on_error` where there is no
    /// decision. With [`refuse_on_error`](super::Call::refuse_on_error) there is an answer to every
    /// failure.
    ///
    /// ```
    /// use tidegate::{Denied, Failed, Limits, Quota, Rule};
    ///
    /// async fn rows(limits: &Limits) -> usize {
    ///     let rows = limits.call("export").key("alice").refuse_on_error().run(async || 7).await;
    ///     match rows {
    ///         Ok(rows) => rows,
    ///         Err(refused) => refused.answer_by(async |_: Denied| 0, async |_: Failed| 1).await,
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// assert_eq!(rows(&Limits::new([Rule::new("export", [Quota::per_hour(0)])?])).await, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn answer_by<T>(
        self,
        degrade: impl AsyncFnOnce(Denied) -> T,
        on_error: impl AsyncFnOnce(Failed) -> T,
    ) -> T {
        let Refusing { rule, refusal, .. } = *self.0;
        match refusal {
            Refusal::Denied(take, decision) => {
                degrade(Denied::new(take, decision, no_head())).await
            }
            Refusal::Failed(_, cause) => on_error(Failed::new(rule, no_head(), cause)).await,
        }
    }

    /// The answer that a layer of the path would give to a request with this head: that of the
    /// [degrade callback](crate::Limits::degrade) or of the
    /// [error callback](crate::Limits::on_error) of the [`Limits`](crate::Limits). Without one it
    /// is the crate's own, in the form that the request expects: a problem document, or a gRPC
    /// status. So the handshake of a WebSocket and a handler behind a layer answer alike.
    ///
    /// An error callback cannot admit what was refused already: where it
    /// [proceeds](crate::callback::Recovery::Proceed), the answer is the crate's own, too.
    ///
    /// ```
    /// use axum::extract::{Request, State};
    /// use axum::response::Response;
    /// use tidegate::Limits;
    ///
    /// async fn handshake(State(limits): State<Limits>, request: Request) -> Response {
    ///     let (head, _) = request.into_parts();
    ///     match limits.check("chat", "alice").await {
    ///         Ok(_) => Response::default(),
    ///         Err(refused) => refused.answer(head).await,
    ///     }
    /// }
    /// # let _ = handshake;
    /// ```
    pub async fn answer(self, mut head: Parts) -> Response {
        let Refusing { refusal, gate, .. } = *self.0;
        let form = gate.form_of(&head, None);
        let options = &gate.options;
        let refusal = match (refusal, options.degrade.clone(), &options.on_error) {
            (Refusal::Denied(take, decision), Some(callback), _) => {
                return of_check(gate.degrade(callback, take, decision, head, None).await);
            }
            (Refusal::Failed(rule, cause), _, Some(callback)) => {
                let pause = gate.pause(&rule);
                head.extensions.insert(RetryAfter(pause));
                let failed = Failed::new(Arc::clone(&rule), head, cause.clone());
                match recover(&**callback, failed).await {
                    Ok(Recovery::Respond(response)) => {
                        return of_check(gate.failed(pause, response, &form));
                    }
                    Ok(Recovery::Proceed | Recovery::Propagate) => Refusal::Failed(rule, cause),
                    Err(panicked) => return of_check(marked(internal_error(&panicked, &form))),
                }
            }
            (refusal, ..) => refusal,
        };
        of_check(gate.answer(refusal, &form))
    }
}

impl Refused {
    /// The fields of a gRPC answer: `grpc-status`, `grpc-message`, and those that say when to come
    /// again, also as details. tonic makes a status of them.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tidegate::layer::Refused;
    ///
    /// fn fields(refused: Refused) -> HeaderMap {
    ///     refused.into_grpc_fields() // tonic::Status::from_header_map(&fields)
    /// }
    /// # let _ = fields;
    /// ```
    #[must_use]
    pub fn into_grpc_fields(self) -> HeaderMap {
        let Refusing { refusal, gate, .. } = *self.0;
        let (mut head, _) = gate
            .answer(refusal, &AnswerForm::Grpc(GrpcCall::unknown()))
            .into_parts();
        head.headers.remove(CONTENT_TYPE);
        head.headers
    }
}

/// The head of the request that a call does not have.
pub(super) fn no_head() -> Parts {
    Request::new(()).into_parts().0
}

/// A refusal that is the answer of the code that has asked, to layers around it.
fn of_check(mut response: Response) -> Response {
    let mark: &mut LayerResponse = response.extensions_mut().get_or_insert_default();
    mark.is_of_check = true;
    response
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refusing { refusal, gate, .. } = *self.0;
        let form = AnswerForm::without_head(gate.options.form);
        of_check(gate.answer(refusal, &form))
    }
}

/// Its text, and the error of the store or of the keys.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.error(), self.key_error()) {
            (Some(error), _) => write!(f, "{self}: {error:?}"),
            (_, Some(error)) => write!(f, "{self}: {error:?}"),
            (None, None) => fmt::Display::fmt(self, f),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.rule().path();
        match self.decision() {
            None => return write!(f, "the limit of {path} cannot be checked now"),
            Some(decision) if decision.is_busy() => {
                return write!(f, "as many requests of {path} run as may at a time");
            }
            Some(decision) if decision.is_on_hold() => write!(f, "{path} wants no calls now")?,
            Some(decision) if decision.is_locked_out() => {
                write!(f, "this key of {path} is locked out after failures")?;
            }
            Some(decision) if decision.source() == Source::Operator => {
                write!(f, "an operator blocks this key of {path}")?;
            }
            Some(_) => write!(f, "the limit of {path} is used up")?,
        }
        match self.retry_after() {
            None => Ok(()),
            Some(wait) => {
                // Rounded up: an earlier question would be denied.
                let seconds = wait.as_millis().div_ceil(1_000).max(1);
                write!(f, ", again in {seconds} s")
            }
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let key_error = || Some(self.key_error()? as _);
        self.error().map(|error| error as _).or_else(key_error)
    }
}

impl From<Refused> for Response {
    /// The answer of a layer without callbacks.
    fn from(refused: Refused) -> Self {
        refused.into_response()
    }
}

impl<V, E: From<Refused>> From<Refused> for Result<V, E> {
    fn from(refused: Refused) -> Self {
        Err(refused.into())
    }
}

/// Why a [call](crate::Limits::call) of a function that may fail has no value.
///
/// It is an axum response where the function's error is one: a refusal is answered as by a layer
/// without callbacks.
///
/// ```
/// use std::io;
/// use tidegate::layer::CallError;
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("export", [Quota::per_hour(0)])?]);
/// let rows = limits.call("export").key("alice").try_run(async || io::Result::Ok(7)).await;
/// match rows {
///     Ok(rows) => println!("{rows}"),
///     Err(CallError::Denied(refused)) => println!("again in {:?}", refused.retry_after()),
///     Err(CallError::Failed(refused)) => println!("no decision: {:?}", refused.error()),
///     Err(CallError::Inner(error)) => println!("the export itself: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub enum CallError<E> {
    /// The function did not run: it was denied.
    Denied(Refused),
    /// The function did not run: there is no decision.
    Failed(Refused),
    /// The function ran, and this is its error.
    Inner(E),
}

/// Each type that is `From<Refused>`, such as the error of a limited function. The compiler says
/// what to do where it is missing.
///
/// ```
/// use tidegate::layer::{CallError, FromRefused, Refused};
///
/// fn error_of<E: FromRefused>(error: CallError<E>) -> E {
///     error.flatten()
/// }
/// # let _ = error_of::<Refused>;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that a call was refused: it is not `From<Refused>`",
    note = "write `impl From<tidegate::layer::Refused>`, or give both `degrade` and `on_error`"
)]
pub trait FromRefused: From<Refused> {}

#[diagnostic::do_not_recommend]
impl<E: From<Refused>> FromRefused for E {}

impl<E: FromRefused> CallError<E> {
    /// The function's error, or what that is made of a refusal.
    #[must_use]
    pub fn flatten(self) -> E {
        match self {
            Self::Denied(refused) | Self::Failed(refused) => refused.into(),
            Self::Inner(error) => error,
        }
    }
}

impl<E> From<Refused> for CallError<E> {
    fn from(refused: Refused) -> Self {
        match refused.0.refusal {
            Refusal::Denied(..) => Self::Denied(refused),
            Refusal::Failed(..) => Self::Failed(refused),
        }
    }
}

impl<E: IntoResponse> IntoResponse for CallError<E> {
    fn into_response(self) -> Response {
        match self {
            Self::Denied(refused) | Self::Failed(refused) => refused.into_response(),
            Self::Inner(error) => error.into_response(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(refused) | Self::Failed(refused) => refused.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for CallError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Denied(refused) | Self::Failed(refused) => refused.source(),
            Self::Inner(error) => error.source(),
        }
    }
}

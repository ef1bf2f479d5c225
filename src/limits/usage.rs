//! What a customer has left.

use std::sync::Arc;

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use futures_util::future::try_join_all;
use http::request::Parts;
use http::{HeaderValue, Request, header};

use super::limits::Limits;
use crate::callback::BoxFuture;
use crate::layer::headers::whole_seconds;
use crate::layer::{Gate, Headers, Look, RuleUsage};
use crate::rule::RuleError;

impl Limits {
    /// Reads what a caller has left by the rules of these paths, for code and, like GitHub's
    /// `GET /rate_limit`, for a [handler](UsageReader::handler). It charges nothing.
    ///
    /// The key and the plan of a request are found as by the layers of these limits, so put the
    /// same authentication around it. What a single layer says for itself (`key`, `plan`,
    /// `plan_value`, `exempt`) is not known here: [`verify`](Self::verify) names layers of these paths
    /// that do. A key of the path or the method is that of this request.
    ///
    /// All rules are asked about at the same time: each costs the store about as much as a request.
    /// Put a layer with a rule of its own around a handler that everybody may call.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tidegate::{Header, Limits, Quota, Rule};
    ///
    /// let limits = Limits::new([Rule::new("api", [Quota::per_minute(600)])?]);
    /// let limits = limits.key(Header::new("x-user"));
    /// let usage = limits.usage(["api"])?;
    /// let app: Router = Router::new().route("/rate_limit", get(usage.handler()));
    /// # let _ = app;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] without a path, for a path without a rule, and for a rule that says no key
    /// where these limits say none.
    pub fn usage<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Result<UsageReader, RuleError> {
        let rules = self.rules.load();
        let gates = paths.into_iter().map(|path| {
            let gate = self.uncounted_gate(path);
            match rules.find(path) {
                None => Err(RuleError::NoRule(path.to_owned())),
                Some(rule) if !gate.knows_keys(rule) => Err(RuleError::NoKey(path.to_owned())),
                Some(_) => {
                    self.rules.mark_shown(path);
                    Ok(Arc::new(gate))
                }
            }
        });
        let gates = gates.collect::<Result<Arc<[_]>, _>>()?;
        if gates.is_empty() {
            return Err(RuleError::NoPath);
        }
        let headers = self.defaults.headers;
        Ok(UsageReader { gates, headers })
    }
}

/// Reads what callers have left by some rules: see [`Limits::usage`].
///
/// ```
/// use axum::extract::{Request, State};
/// use axum::response::Response;
/// use tidegate::limits::UsageReader;
///
/// async fn paths(State(usage): State<UsageReader>, request: Request) -> Result<String, Response> {
///     let usage = usage.read(request.into_parts().0).await?;
///     let used_up = usage.rules.iter().filter(|it| it.decision.remaining() == 0);
///     Ok(used_up.map(|it| it.rule.path()).collect())
/// }
/// # let _ = paths;
/// ```
#[derive(Debug, Clone)]
pub struct UsageReader {
    gates: Arc<[Arc<Gate>]>,
    headers: Option<Headers>,
}

/// What a caller has left: see [`Limits::usage`]. As a response it is its [JSON](Self::to_json),
/// beside the layers' fields: a 200 also where all is used up.
///
/// ```
/// use tidegate::{Header, Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("api", [Quota::per_minute(600)])?.with_key(Header::new("x-user"));
/// let usage = Limits::new([rule]).usage(["api"])?;
/// let (head, ()) = http::Request::builder().header("x-user", "alice").body(())?.into_parts();
/// let left = usage.read(head).await.expect("it has a key");
/// assert_eq!(left.rules[0].decision.remaining(), 600);
/// assert!(left.to_json().contains(r#""limit":600,"remaining":600"#));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Usage {
    /// By rule, in the order of the paths. Shadow rules and rules that are switched off are left
    /// out. A client that is exempt or let through has all of each quota left, and one that an
    /// operator blocks, or whose key is [held](crate::decision::Verdict::LockedOut), has nothing
    /// until that ends.
    pub rules: Vec<RuleUsage>,
    headers: Option<Headers>,
}

impl UsageReader {
    /// What the caller with this head of a request has left.
    ///
    /// # Errors
    ///
    /// A response: a request without its key, or without an answer of the store, is answered as by
    /// a layer, and with a 503 where that would let it pass.
    #[allow(clippy::result_large_err, reason = "it is answered at once")]
    pub async fn read(&self, mut head: Parts) -> Result<Usage, Response> {
        let mut looks = Vec::with_capacity(self.gates.len());
        for gate in &*self.gates {
            match gate.look(&mut head) {
                Ok(look) => looks.extend(look),
                Err(action) => return Err(gate.answer_instead(*action, head).await),
            }
        }
        match try_join_all(looks.into_iter().map(Look::left)).await {
            Ok(rules) => Ok(Usage {
                rules,
                headers: self.headers,
            }),
            Err((gate, action)) => Err(gate.answer_instead(action, head).await),
        }
    }

    /// A handler that answers what the caller has left. The body is JSON, beside the layers' fields.
    pub fn handler(
        self,
    ) -> impl Fn(Request<Body>) -> BoxFuture<'static, Response> + Clone + Send + Sync + 'static
    {
        move |request| {
            let usage = self.clone();
            Box::pin(async move { usage.read(request.into_parts().0).await.into_response() })
        }
    }
}

impl Usage {
    /// JSON: `{"rules":[{"path":"api","plan":"pro","policies":[..]}]}`, with policies as
    /// `{"name":"api-1m","limit":600,"remaining":598,"reset":60,"window":60}`, those of a
    /// [joint](crate::Rule::joint) rule with their `subject`. All of a quota is back in `reset`
    /// seconds. Requests at a time have no window and no reset: how many more may run is what
    /// remains. A rule that is raised has the factor: `"raised":2.5`. What is left is unknown in an
    /// outage: while a fallback decides there is `"fallback":true`, and `remaining` and `reset` are
    /// `null`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let rules = self.rules.iter().map(RuleUsage::to_json);
        format!("{{\"rules\":[{}]}}", rules.collect::<Vec<_>>().join(","))
    }
}

impl IntoResponse for Usage {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.to_json().into());
        let fields = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        fields.insert(header::CONTENT_TYPE, json);
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for usage in self.rules.iter().filter(|it| it.is_limited) {
            let retry_after = usage.decision.retry_after().map(whole_seconds);
            let headers = self.headers.or(usage.rule.answers().headers);
            let headers = headers.unwrap_or_default();
            headers.write(&usage.rule, &usage.decision, retry_after, fields);
        }
        response
    }
}

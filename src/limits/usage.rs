//! What a customer has left, as the answer to a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum_core::body::Body;
use axum_core::response::Response;
use futures_util::future::try_join_all;
use http::{HeaderValue, Request, header};
use tokio::time::Instant;

use super::limits::Limits;
use crate::callback::{BoxFuture, push_json};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::layer::headers::{reset, shown};
use crate::layer::{Gate, Look};
use crate::rule::{Rule, RuleError};
use crate::sync::lock;

impl Limits {
    /// A handler that answers what the caller has left by the rules of these paths, like GitHub's
    /// `GET /rate_limit`. It charges nothing, and answers with a 200 also where all is used up.
    ///
    /// The key and the plan of a request are found as by the layers of these limits, so put the
    /// same authentication around it. What a single layer says for itself (`key`, `plan`,
    /// `plan_value`, `exempt`) is not known here: [`verify`](Self::verify) names layers of these paths
    /// that do. A key of the path or the method is that of this request.
    ///
    /// The body is JSON, beside the layers' fields:
    /// `{"rules":[{"path":"api","plan":"pro","policies":[..]}]}`, with policies as
    /// `{"name":"api-1m","limit":600,"remaining":598,"reset":60,"window":60}`. All of a quota is
    /// back in `reset` seconds. Requests at a time have no window and no reset: how many more may
    /// run is what remains. Hidden quotas, subjects that the request does not have, shadow rules
    /// and rules that are switched off are left out. A client that is exempt or let through has
    /// all of each quota left, and one that an operator blocks has nothing until the block ends.
    /// One that is raised has the quotas of the raise, and the rule its factor: `"raised":2.5`.
    ///
    /// All rules are asked about at the same time, and each key's answer is kept for a second. A
    /// request without its key, or without an answer of the store, is answered as by a layer, and
    /// with a 503 where that would let it pass.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tidegate::{Header, Limits, Quota, Rule};
    ///
    /// let limits = Limits::new([Rule::new("api", [Quota::per_minute(600)])?]);
    /// let limits = limits.key(Header::new("x-user"));
    /// let app: Router = Router::new().route("/rate_limit", get(limits.usage(["api"])?));
    /// # let _ = app;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] without a path, for a path without a rule, and for a rule that says no key
    /// where these limits say none.
    pub fn usage<'a, Paths: IntoIterator<Item = &'a str>>(
        &self,
        paths: Paths,
    ) -> Result<
        impl Fn(Request<Body>) -> BoxFuture<'static, Response>
        + Clone
        + Send
        + Sync
        + 'static
        + use<Paths>,
        RuleError,
    > {
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
        let gates = gates.collect::<Result<Vec<_>, _>>()?;
        if gates.is_empty() {
            return Err(RuleError::NoPath);
        }
        let recent = Mutex::default();
        let usage = Arc::new(Usage { gates, recent });
        Ok(move |request| -> BoxFuture<'static, Response> {
            Box::pin(Arc::clone(&usage).answer(request))
        })
    }
}

/// The rules that a handler shows.
struct Usage {
    gates: Vec<Arc<Gate>>,
    /// By the name of the count, or of several together.
    recent: Mutex<HashMap<String, Recent>>,
}

/// What was left of a count a moment ago, under a rule with the quotas of a plan.
struct Recent {
    rule: Arc<Rule>,
    decision: Decision,
    at: Instant,
}

impl Recent {
    const MAX: usize = 1_000;

    fn is_fresh(&self) -> bool {
        self.at.elapsed() < Duration::from_secs(1)
    }
}

impl Usage {
    async fn answer(self: Arc<Self>, request: Request<Body>) -> Response {
        let (mut head, _) = request.into_parts();
        let mut looks = Vec::with_capacity(self.gates.len());
        for gate in &self.gates {
            match gate.look(&mut head) {
                Ok(look) => looks.extend(look),
                Err(action) => return gate.answer_instead(*action, head).await,
            }
        }
        let answers = looks.iter().map(async |look| {
            let left = self.left(look).await;
            let left = left.map(|decision| look.told(decision));
            left.map_err(|error| (look, error))
        });
        match try_join_all(answers).await {
            Ok(decisions) => written(looks.iter().zip(&decisions)),
            Err((look, error)) => look.answer_without(error, head).await,
        }
    }

    async fn left(&self, look: &Look) -> Result<Decision, StoreError> {
        let Some(take) = &look.take else {
            return Ok(look.untouched());
        };
        if let Some(blocked) = &look.blocked {
            return Ok(Decision::clone(blocked));
        }
        let (name, rule) = (take.name(""), take.rule());
        if let Some(recent) = lock(&self.recent).get(&name)
            && recent.is_fresh()
            && Arc::ptr_eq(&recent.rule, rule)
        {
            return Ok(recent.decision.clone());
        }
        let decision = look.peek(take).await?;
        let mut all = lock(&self.recent);
        if all.len() >= Recent::MAX {
            all.retain(|_, recent| recent.is_fresh());
        }
        if all.len() < Recent::MAX {
            let (rule, decision, at) = (Arc::clone(rule), decision.clone(), Instant::now());
            all.insert(name, Recent { rule, decision, at });
        }
        Ok(decision)
    }
}

/// The response that shows these rules.
fn written<'a>(looks: impl Iterator<Item = (&'a Look, &'a Decision)>) -> Response {
    let mut response = Response::default();
    let fields = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    fields.insert(header::CONTENT_TYPE, json);
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let rules = looks.map(|(look, decision)| {
        // Nothing limits a client without a take.
        if look.take.is_some() {
            let headers = look.gate.options.headers;
            headers.write(&look.rule, decision, fields);
        }
        json_of(&look.rule, decision)
    });
    let rules = rules.collect::<Vec<_>>().join(",");
    *response.body_mut() = format!("{{\"rules\":[{rules}]}}").into();
    response
}

fn json_of(rule: &Rule, decision: &Decision) -> String {
    let mut json = "{\"path\":\"".to_owned();
    push_json(&mut json, rule.path());
    if let Some(plan) = rule.plan() {
        json.push_str("\",\"plan\":\"");
        push_json(&mut json, plan);
    }
    json.push('"');
    if let Some(factor) = rule.factor() {
        json += &format!(",\"raised\":{factor}");
    }
    let policies = shown(rule, decision).map(|(policy, state)| {
        // A policy's name has no quotes, backslashes or control characters.
        let (name, limit, left) = (policy.name(), policy.quota().max(), state.remaining());
        let of_window = || {
            let window = policy.quota().window().as_secs_f64();
            format!(",\"reset\":{},\"window\":{window}", reset(state, decision))
        };
        let of_window = (!policy.is_concurrent())
            .then(of_window)
            .unwrap_or_default();
        format!("{{\"name\":\"{name}\",\"limit\":{limit},\"remaining\":{left}{of_window}}}")
    });
    let policies = policies.collect::<Vec<_>>().join(",");
    json + &format!(",\"policies\":[{policies}]}}")
}

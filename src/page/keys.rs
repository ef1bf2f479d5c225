//! One key: what it has left, its reset, and letting it through or blocking it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::Page;
use super::guard::{RefusedRequest, check_change, check_form};
use super::router::PageState;
use super::views::{quotas, show_operated};
use crate::callback::{caught, guarded};
use crate::error::StoreError;
use crate::key::{Key, KeyExtractor};
use crate::layer::SubjectKeys;
use crate::limits::operators::{OperatorError, within};
use crate::question::Change;
use crate::rule::{Factor, Policy, Rule, Subject};
use crate::store::{OperatorKey, OperatorKind, Store};

/// The longest body of a request, in bytes.
const MAX_BODY: usize = 16 * 1_024;
/// The longest message of a refusal, in characters.
const MAX_MESSAGE: usize = 500;
/// How much of a wrong text is repeated, in characters.
const MAX_SHOWN: usize = 60;

/// A key of a rule that a request is about.
struct TargetKey {
    path: String,
    /// `None` if no rule has this path.
    rule: Option<Arc<Rule>>,
    plan: Option<String>,
    /// The subject of a joint rule.
    subject: Option<String>,
    key: Key,
    /// The key, or what [names](Key::with_subject) that of the subject.
    name: Key,
    /// How keys of the rule are written, if this one was written otherwise.
    hint: Option<String>,
    body: Map<String, Value>,
}

/// What is left of the quotas of a key.
pub(super) async fn look(State(state): State<Arc<PageState>>, request: Request) -> Response {
    let page = &state.page;
    answer(async {
        let (head, body) = request.into_parts();
        check_form(&head)?;
        look_at(page, TargetKey::read(page, body).await?).await
    })
    .await
}

/// Forgets what counts for a key.
pub(super) async fn reset(State(state): State<Arc<PageState>>, request: Request) -> Response {
    changed(async move {
        let page = &state.page;
        let (by, target) = change(page, request).await?;
        let (path, limits) = (target.rule()?.path(), &page.limits);
        let reset = limits.reset(path, target.keys());
        let found = reset.by(&by.unwrap_or_default()).await;
        let found = found.map_err(|error| no_answer(page, &error))?;
        Ok(with_hint(json!({"found": found}), target))
    })
    .await
}

/// Lets a key through, blocks it or raises it for a while, or ends that. What is done, and by which
/// factor, is made of the request.
pub(super) async fn set(
    kind: impl FnOnce(Option<Factor>) -> Option<OperatorKind> + Send + 'static,
    state: Arc<PageState>,
    request: Request,
) -> Response {
    changed(async move {
        let page = &state.page;
        let (by, target) = change(page, request).await?;
        let factor = target.body.get("factor").and_then(Value::as_f64);
        let note = target.body.get("note").and_then(Value::as_str);
        let only = target.body.get("only").cloned().map(serde_json::from_value);
        let message = "only is no list of the names of quotas".to_owned();
        let only: Option<Vec<Box<str>>> = only.transpose().map_err(|_| wrong(message))?;
        let seconds = target.body.get("seconds").and_then(Value::as_u64);
        // An end needs no factor.
        let of_end = (seconds == Some(0)).then_some(Factor::ONE);
        let kind = kind(factor.and_then(Factor::new).or(of_end));
        let kind = kind.ok_or_else(|| {
            wrong("factor is not there or wrong, expected 0.01 to 1000".to_owned())
        })?;
        let message = "seconds is not there, or no whole number: 0 ends it";
        let seconds = seconds.ok_or_else(|| wrong(message.to_owned()))?;
        // What was begun can be ended, also if the rule is gone.
        (seconds > 0).then(|| target.rule()).transpose()?;
        let one = OperatorKey {
            kind,
            path: target.path.as_str().into(),
            key: target.name.as_str().into(),
            by: by.as_deref().map(Arc::from),
            note: note.map(Arc::from),
            only: only.unwrap_or_default().into(),
            replaces: target.body.get("replace") == Some(&Value::Bool(true)),
            time: Duration::from_secs(seconds),
        };
        let operated = page.limits.operate(one).await;
        let is_known = operated.map_err(|error| match error {
            OperatorError::Store(error) => no_answer(page, &error),
            OperatorError::Stands(_) => (StatusCode::PRECONDITION_REQUIRED, error.to_string()),
            OperatorError::TooMany(_) => (StatusCode::CONFLICT, error.to_string()),
            _ => wrong(error.to_string()),
        })?;
        let ends_in = (seconds > 0).then_some(seconds as f64);
        let mut answer = json!({"ends_in_s": ends_in});
        if !is_known {
            answer["hint"] = "no request had this key lately".into();
        }
        Ok(with_hint(answer, target))
    })
    .await
}

/// Who changes something, if they may, and of which key.
async fn change(
    page: &Page,
    request: Request,
) -> Result<(Option<String>, TargetKey), RefusedRequest> {
    let (head, body) = request.into_parts();
    check_form(&head)?;
    check_change(page, &head)?;
    let actor = page.actor.as_ref();
    let actor = actor.map(|actor| caught("actor", "", || actor(&head)));
    let actor = actor.transpose().map_err(|_| {
        let message = "the actor could not be told, nothing was changed";
        (StatusCode::INTERNAL_SERVER_ERROR, message.to_owned())
    })?;
    Ok((actor.flatten(), TargetKey::read(page, body).await?))
}

async fn look_at(page: &Page, target: TargetKey) -> Result<Value, RefusedRequest> {
    let TargetKey { name, plan, .. } = &target;
    let rule = target.rule()?;
    let path = rule.path();
    let chosen = match plan {
        Some(plan) => rule.of_plan(plan),
        None => page.limits.last_chosen(rule, name),
    };
    let asked_rule = chosen.clone().unwrap_or_else(|| Arc::clone(rule));
    let store = page.limits.shared_store();
    let take = target.keys().take_asked(asked_rule, store);
    let take = asked(page, async { take }).await?;
    let take = page.limits.operator_keys.raised(take);
    // A plan may have no quota of a subject.
    let state = match take.counts() {
        [] => take.decision_of(Vec::new()),
        _ => asked(page, store.take(&take.ask.clone().looking())).await?,
    };
    let locked_out = state.retry_after().filter(|_| state.is_denied_by_lockout());
    let times = match locked_out {
        // Where a fallback has answered, nobody knows it.
        Some(_) => within(store.change(&take, &Change::AskLockout)).await.ok(),
        None => None,
    };
    let state = state.looked();
    // A hold of no time only asks.
    let held = if rule.is_outgoing() && store.capabilities().holds {
        asked(page, store.hold(&take, Duration::ZERO)).await?
    } else {
        Duration::ZERO
    };
    let mut fits = held.is_zero();
    // A fallback knows what is left of its share in this process.
    let is_known = state.failure().is_none();
    let policies = take.rule().policies();
    let mut quotas = quotas(policies);
    for ((quota, policy), state) in quotas.iter_mut().zip(policies).zip(state.quotas()) {
        quota["remaining"] = is_known.then(|| state.remaining()).into();
        let cost = if policy.is_concurrent() {
            let in_flight = policy.quota().max().saturating_sub(state.remaining());
            quota["in_flight"] = is_known.then_some(in_flight).into();
            1
        } else {
            let reset = is_known.then(|| state.reset_after().as_secs_f64());
            quota["reset_in_s"] = reset.into();
            policy.cost().unwrap_or(rule.cost())
        };
        fits &= state.remaining() >= cost || target.is_other(policy);
    }
    let mut of_target = policies.iter().map(|policy| !target.is_other(policy));
    quotas.retain(|_| of_target.next().unwrap_or(true));
    let is_enforced = !rule.is_shadow() && page.limits.rules().guard().get(path).is_some();
    let mut shown = json!({
        "rule": path,
        "row": target.row(page),
        "subject": target.subject,
        "key": page.shown(target.key.as_str()),
        "everyone": target.key.as_str().is_empty(),
        "plan": take.rule().plan(),
        "hint": target.hint.clone().or_else(|| hint_of_plans(rule, chosen.is_some())),
        "quotas": quotas,
        "on_hold_s": (!held.is_zero()).then_some(held.as_secs_f64()),
        "locked_out_s": locked_out.map(|time| time.as_secs_f64()),
        "locked_out_times": times,
    });
    show_operated(&page.limits, path, name.as_str(), &mut shown);
    let is_said = |what: &str| !shown[what].is_null();
    let fits = (fits && !is_said("blocked_in_s")) || is_said("let_through_in_s");
    shown["allowed"] = (fits || !is_enforced).into();
    Ok(shown)
}

/// How keys of several alternatives are written, for somebody who has written another one.
fn hint(extractors: &[Arc<dyn KeyExtractor>], key: &Key) -> Option<String> {
    let alternatives = extractors.iter().flat_map(|it| it.alternatives());
    let mut forms = Vec::new();
    for mark in alternatives.map(|one| one.marked(Key::default())) {
        let value = key.as_str().strip_prefix(mark.as_str());
        let (form, is_it) = match mark.as_str() {
            "peer-ip" | "client-ip" => ("an address".to_owned(), key.is_address),
            "everyone" => (mark.to_string(), *key == mark),
            _ => (
                format!("{mark}|..."),
                value.is_some_and(|it| it.starts_with(['|', '#'])),
            ),
        };
        if is_it {
            return None;
        }
        forms.push(form);
    }
    let forms = forms.join(", ");
    (!forms.is_empty()).then(|| format!("a key of this rule is one of: {forms}"))
}

fn with_hint(mut answer: Value, target: TargetKey) -> Value {
    if let Some(hint) = target.hint {
        answer["hint"] = hint.into();
    }
    answer
}

/// The plans of a rule, for somebody who has looked without one at a key of which this process does
/// not know by which quotas it was decided last.
fn hint_of_plans(rule: &Rule, is_chosen: bool) -> Option<String> {
    let plans: Vec<_> = rule.plans().collect();
    (!is_chosen && !plans.is_empty()).then(|| {
        let plans = plans.join(", ");
        format!("these are the rule's own quotas: it has the plans {plans}")
    })
}

impl TargetKey {
    async fn read(page: &Page, body: axum::body::Body) -> Result<Self, RefusedRequest> {
        let body = axum::body::to_bytes(body, MAX_BODY).await.map_err(|_| {
            let message = format!("the body is longer than {MAX_BODY} bytes, or was cut off");
            (StatusCode::PAYLOAD_TOO_LARGE, message)
        })?;
        let body: Map<String, Value> = serde_json::from_slice(&body)
            .map_err(|error| wrong(format!("the body is no JSON object: {error}")))?;
        let string = |name: &str| match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(wrong(format!("{name} is no string"))),
        };
        let path = string("rule")?.ok_or_else(|| wrong("rule is missing".to_owned()))?;
        let rule = page.limits.rules().guard().find(path).cloned();
        let plan = string("plan")?.filter(|plan| !plan.is_empty());
        if let (Some(plan), Some(rule)) = (plan, &rule)
            && rule.of_plan(plan).is_none()
        {
            let plans: Vec<_> = rule.plans().collect();
            let plans = plans.join(", ");
            return Err(wrong(format!(
                "the rule has no plan {:?}, expected one of: {plans}",
                shown(plan)
            )));
        }
        let (subject, hint, key) = match (string("key")?, string("row")?) {
            (Some(text), None) => {
                let subject = subject_of(rule.as_deref(), string("subject")?)?;
                let mut of_rule = rule.iter().flat_map(|it| it.subjects());
                let of_rule = of_rule.find(|it| Some(it.name()) == subject.as_deref());
                let extractors = page.limits.extractors_of(path, rule.as_deref(), of_rule);
                let key = match of_rule {
                    Some(of_rule) if of_rule.is_everyone() => Key::default(),
                    _ => key_of(&extractors, text)?,
                };
                (subject, hint(&extractors, &key), key)
            }
            (None, Some(row)) => {
                let (subject, key) = page.key_of_row(path, row)?;
                (subject, None, key)
            }
            _ => return Err(wrong("expected either key or row".to_owned())),
        };
        let name = match &subject {
            Some(subject) => key.with_subject(subject),
            None => key.clone(),
        };
        let plan = plan.map(str::to_owned);
        Ok(Self {
            path: path.to_owned(),
            rule,
            plan,
            subject,
            key,
            name,
            hint,
            body,
        })
    }

    /// The key, of the subject if there is one.
    fn keys(&self) -> SubjectKeys {
        let key = self.key.clone();
        match &self.subject {
            Some(subject) => [(&**subject, key)].into(),
            None => key.into(),
        }
    }

    /// Whether a quota of the rule is that of another subject.
    fn is_other(&self, policy: &Policy) -> bool {
        let of_first = || Some(self.rule.as_ref()?.subjects().first()?.name());
        self.subject.is_some() && policy.subject().or_else(of_first) != self.subject.as_deref()
    }

    /// The rule, if it has the subject.
    fn rule(&self) -> Result<&Arc<Rule>, RefusedRequest> {
        let rule = self.rule.as_ref().ok_or_else(|| {
            let message = format!("there is no rule {:?}", shown(&self.path));
            (StatusCode::NOT_FOUND, message)
        })?;
        if subject_of(Some(rule), self.subject.as_deref())? != self.subject {
            return Err(wrong("this key is of no subject of the rule".to_owned()));
        }
        Ok(rule)
    }

    fn row(&self, page: &Page) -> String {
        page.limits
            .member
            .hashed_key(&self.path, self.name.as_str())
    }
}

/// The subject that a request names: one of the rule's, if it has some, else none. Without a rule
/// it may be any.
fn subject_of(rule: Option<&Rule>, named: Option<&str>) -> Result<Option<String>, RefusedRequest> {
    let subjects = rule.map_or(&[][..], Rule::subjects);
    let named = match (named, subjects) {
        (None, [only]) => Some(only.name()),
        _ => named,
    };
    let is_one = subjects.iter().any(|it| Some(it.name()) == named);
    if rule.is_none() || is_one || (named.is_none() && subjects.is_empty()) {
        return Ok(named.map(str::to_owned));
    }
    let names: Vec<_> = subjects.iter().map(Subject::name).collect();
    Err(wrong(match &names[..] {
        [] => "the rule has no subjects, expected a key alone".to_owned(),
        names => format!(
            "subject is missing or wrong, expected one of: {}",
            names.join(", ")
        ),
    }))
}

/// The key that one of the extractors makes of this text, or else the one that has it.
fn key_of(extractors: &[Arc<dyn KeyExtractor>], text: &str) -> Result<Key, RefusedRequest> {
    let keys = extractors.iter().filter_map(|it| it.key_of_text(text));
    // An address may be taken for a token as well.
    let key = keys.min_by_key(|key| !key.is_address);
    let address = || Some(text.parse::<IpAddr>().ok()?.into());
    let key = key.or_else(address).or_else(|| Key::from_text(text));
    key.ok_or_else(|| {
        wrong(format!(
            "key is {:?}, expected the text of a key: parts joined by \":\", in which everything \
             but letters, digits and -._/@!$&'()*+,;=? is written as %3A",
            shown(text)
        ))
    })
}

impl Page {
    /// The key that a view shows in this row, and its subject.
    fn key_of_row(&self, path: &str, row: &str) -> Result<(Option<String>, Key), RefusedRequest> {
        let is_it = |key: &str| self.limits.member.hashed_key(path, key) == row;
        self.limits.reports.want_fleet();
        let own = self.limits.paths.limited.most_denied(usize::MAX).0;
        let limited = own.into_iter().chain(self.limits.most_limited().0);
        let limited = limited.filter(|it| *it.path == *path).map(|it| it.key);
        let listed = self.limits.operator_keys.list().into_iter();
        let listed = listed.filter(|it| *it.path == *path);
        let mut keys = limited.chain(listed.map(|it| it.key.to_string()));
        match keys.find(|key| is_it(key)) {
            // Parts that a client chose may look like an address, and what is stored in Redis like
            // no key.
            Some(key) => Key::from_text(&key)
                .as_ref()
                .map_or_else(|| Err(no_key()), named_key),
            None => {
                let message = "this row is not known any more: look the key up by its text";
                Err((StatusCode::NOT_FOUND, message.to_owned()))
            }
        }
    }
}

/// The subject and the key of a name in a list of keys.
fn named_key(name: &Key) -> Result<(Option<String>, Key), RefusedRequest> {
    let (subject, key) = Key::split_subject(name.as_str());
    Ok((subject, Key::from_text(key).ok_or_else(no_key)?))
}

fn no_key() -> RefusedRequest {
    wrong("this row has no key: something else wrote it".to_owned())
}

/// This future, whose events are of the span that is current now.
fn in_current_span<F: Future>(future: F) -> impl Future<Output = F::Output> {
    #[cfg(feature = "tracing")]
    return tracing::Instrument::in_current_span(future);
    #[cfg(not(feature = "tracing"))]
    future
}

/// The answer to a change: it goes on, and is logged, also if the client is gone meanwhile.
async fn changed(
    made: impl Future<Output = Result<Value, RefusedRequest>> + Send + 'static,
) -> Response {
    let answered = tokio::spawn(in_current_span(answer(made))).await;
    answered.unwrap_or_else(|_| {
        let message = "the server shuts down: nobody knows what was changed";
        refuse(StatusCode::SERVICE_UNAVAILABLE, message)
    })
}

/// The store's answer to an operator.
async fn asked<T>(
    page: &Page,
    question: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, RefusedRequest> {
    let answer = within(question).await;
    answer.map_err(|error| no_answer(page, &error))
}

fn no_answer(page: &Page, error: &StoreError) -> RefusedRequest {
    let message = if page.shows_keys {
        error.to_string()
    } else {
        format!("the store gave no answer: {}", error.kind().name())
    };
    (StatusCode::SERVICE_UNAVAILABLE, message)
}

/// The answer, or the refusal with its reason. A store of somebody else may panic.
async fn answer(made: impl Future<Output = Result<Value, RefusedRequest>>) -> Response {
    match guarded("store", "", || made).await {
        Ok(Ok(answer)) => json_response(StatusCode::OK, &answer),
        Ok(Err((status, message))) => refuse(status, &message),
        Err(_) => refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the store panicked: nobody knows what it did",
        ),
    }
}

pub(super) fn refuse(status: StatusCode, message: &str) -> Response {
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    json_response(status, &json!({"error": message}))
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    let fields = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, fields, value.to_string()).into_response()
}

fn wrong(message: String) -> RefusedRequest {
    (StatusCode::BAD_REQUEST, message)
}

/// The beginning of a text.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

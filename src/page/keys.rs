//! One key: what it has left, its reset, and letting it through.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::guard::{Refused, check_change, check_form};
use super::router::PageState;
use super::views::{most_limited, quotas};
use super::{Page, guard};
use crate::callback::{caught, guarded};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{Key, KeyExtractor};
use crate::rule::Rule;
use crate::store::{LetThrough, Store};
use crate::trace;

/// How long the store may take.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The longest body of a request, in bytes.
const MAX_BODY: usize = 16 * 1_024;
/// The longest name of whoever changes something, in characters.
const MAX_ACTOR: usize = 100;
/// How much of a wrong text is repeated, in characters.
const MAX_SHOWN: usize = 60;

/// A key of a rule that a request is about.
struct Subject {
    path: String,
    /// `None` if no rule has this path.
    rule: Option<Arc<Rule>>,
    plan: Option<String>,
    key: Key,
    body: Map<String, Value>,
}

/// What is left of the quotas of a key.
pub(super) async fn look(State(state): State<Arc<PageState>>, request: Request) -> Response {
    let page = &state.page;
    answer(async {
        let (head, body) = request.into_parts();
        check_form(&head)?;
        look_at(page, Subject::read(page, body).await?).await
    })
    .await
}

/// Forgets what counts for a key.
pub(super) async fn reset(State(state): State<Arc<PageState>>, request: Request) -> Response {
    changed(async move {
        let page = &state.page;
        let (head, body) = request.into_parts();
        let by = change(page, &head)?;
        let subject = Subject::read(page, body).await?;
        let (path, limits) = (subject.rule()?.path(), &page.limits);
        let (row, by) = (subject.row(page), by.unwrap_or_default());
        let found = asked(page, limits.reset(path, subject.key.clone())).await;
        if let Err((_, error)) = &found {
            trace::event!(warn: path, row, by, error, "the count of a key may have been reset");
        }
        let found = found?;
        limits.forget_denials(path, &subject.key);
        limits.monitor.changed();
        trace::event!(info: path, row, by, found, "the count of a key was reset");
        Ok(with_hint(json!({"found": found}), page, &subject))
    })
    .await
}

/// Lets a key through for a while, or ends that.
pub(super) async fn let_through(State(state): State<Arc<PageState>>, request: Request) -> Response {
    changed(async move {
        let page = &state.page;
        let (head, body) = request.into_parts();
        let by = change(page, &head)?;
        let subject = Subject::read(page, body).await?;
        let longest = LetThrough::LONGEST.as_secs();
        let seconds = subject.body.get("seconds").and_then(Value::as_u64);
        let seconds = seconds.filter(|it| *it <= longest).ok_or_else(|| {
            wrong(format!(
                "seconds is not there or wrong, expected 0 to {longest}: 0 ends it"
            ))
        })?;
        // What was begun can be ended, also if the rule is gone.
        if seconds > 0 {
            subject.rule()?;
        }
        let one = LetThrough {
            path: subject.path.as_str().into(),
            key: subject.key.as_str().into(),
            by: by.as_deref().map(Arc::from),
            time: Duration::from_secs(seconds),
        };
        let (limits, path) = (&page.limits, &*subject.path);
        let (row, by) = (subject.row(page), by.unwrap_or_default());
        let is_kept = asked(page, limits.shared_store().let_through(&one)).await;
        if let Err((_, error)) = &is_kept {
            trace::event!(warn: path, row, by, seconds, error, "a key may be let through");
        }
        let is_kept = is_kept?;
        if is_kept == Some(false) || !limits.let_key_through(one, is_kept.is_some()) {
            let message = format!("{} keys are let through already", LetThrough::MAX);
            return Err((StatusCode::CONFLICT, message));
        }
        trace::event!(info: path, row, by, seconds, "a key is let through");
        let ends_in = (seconds > 0).then_some(seconds as f64);
        Ok(with_hint(json!({"ends_in_s": ends_in}), page, &subject))
    })
    .await
}

/// Who changes something, if they may.
fn change(page: &Page, head: &Parts) -> Result<Option<String>, Refused> {
    check_form(head)?;
    check_change(page, head)?;
    let Some(actor) = &page.actor else {
        return Ok(None);
    };
    let actor = caught("actor", "", || actor(head));
    let panicked = |_| {
        let message = "the actor could not be told, nothing was changed";
        (StatusCode::INTERNAL_SERVER_ERROR, message.to_owned())
    };
    let actor = actor.map_err(panicked)?;
    Ok(actor.map(|actor| actor.chars().take(MAX_ACTOR).collect()))
}

async fn look_at(page: &Page, subject: Subject) -> Result<Value, Refused> {
    let Subject { key, plan, .. } = &subject;
    let rule = subject.rule()?;
    let path = rule.path();
    let mut peek = page.limits.peek(path, key.clone());
    if let Some(plan) = plan {
        peek = peek.plan(plan);
    }
    let state = asked(page, peek.into_future()).await?;
    let of_plan = plan.as_ref().and_then(|plan| rule.of_plan(plan));
    let rule_of_plan = of_plan.as_ref().unwrap_or(rule);
    let mut quotas = quotas(rule_of_plan.policies());
    let states = state.iter().flat_map(|state| state.quotas());
    for (quota, state) in quotas.iter_mut().zip(states) {
        quota["remaining"] = state.remaining().into();
        quota["reset_in_s"] = state.reset_after().as_secs_f64().into();
    }
    let fits = state.is_some_and(|state| state.remaining() >= rule.cost());
    let let_through = page.limits.let_through().time_of(path, key.as_str());
    let is_enforced = !rule.is_shadow() && page.limits.rules().peek().get(path).is_some();
    Ok(json!({
        "rule": path,
        "row": subject.row(page),
        "key": page.shows_keys.then(|| key.as_str()),
        "allowed": fits || let_through.is_some() || !is_enforced,
        "hint": hint(page, rule, key).or_else(|| hint_of_plans(rule, plan.as_deref())),
        "quotas": quotas,
        "let_through_in_s": let_through.map(|it| it.as_secs_f64()),
    }))
}

/// How a key of one of several alternatives begins, for whoever has written one without.
fn hint(page: &Page, rule: &Rule, key: &Key) -> Option<String> {
    let alternatives = page.limits.extractor(rule)?.alternatives();
    let marks = alternatives.iter().map(|one| one.mark());
    // Addresses have no mark.
    let marks: Vec<_> = marks.filter(|it| !it.ends_with("-ip")).collect();
    let is_marked = marks.iter().any(|mark| key.as_str().starts_with(&**mark));
    let text = key.as_str().replace("%3A", ":");
    let address = text.split('/').next().unwrap_or_default();
    if marks.is_empty() || is_marked || address.parse::<IpAddr>().is_ok() {
        return None;
    }
    let marks: Vec<_> = marks.iter().map(|mark| format!("{mark}|")).collect();
    Some(format!(
        "a key of this rule is an address, or begins with one of: {}",
        marks.join(", ")
    ))
}

fn with_hint(mut answer: Value, page: &Page, subject: &Subject) -> Value {
    let rule = subject.rule.as_ref();
    if let Some(hint) = rule.and_then(|rule| hint(page, rule, &subject.key)) {
        answer["hint"] = hint.into();
    }
    answer
}

/// The plans of a rule, for whoever has looked without one.
fn hint_of_plans(rule: &Rule, plan: Option<&str>) -> Option<String> {
    let plans: Vec<_> = rule.plans().collect();
    (plan.is_none() && !plans.is_empty()).then(|| {
        let plans = plans.join(", ");
        format!("these are the rule's own quotas: it has the plans {plans}")
    })
}

impl Subject {
    async fn read(page: &Page, body: axum::body::Body) -> Result<Self, Refused> {
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
        let rule = page.limits.rules().peek().find(path).cloned();
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
        let key = match (string("key")?, string("row")?) {
            (Some(text), None) => page.key_of(rule.as_deref(), text)?,
            (None, Some(row)) => page.key_of_row(path, row)?,
            _ => return Err(wrong("expected either key or row".to_owned())),
        };
        let plan = plan.map(str::to_owned);
        Ok(Self {
            path: path.to_owned(),
            rule,
            plan,
            key,
            body,
        })
    }

    fn rule(&self) -> Result<&Arc<Rule>, Refused> {
        self.rule.as_ref().ok_or_else(|| {
            let message = format!("there is no rule {:?}", shown(&self.path));
            (StatusCode::NOT_FOUND, message)
        })
    }

    fn row(&self, page: &Page) -> String {
        page.limits.monitor.row(&self.path, self.key.as_str())
    }
}

impl Page {
    /// The key with this text. An address, and a secret value, stand for the key that extractors
    /// make of it.
    fn key_of(&self, rule: Option<&Rule>, text: &str) -> Result<Key, Refused> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Key::from(address));
        }
        let extractor = rule.and_then(|rule| self.limits.extractor(rule));
        if let Some(key) = extractor.and_then(|extractor| key_of_secret(extractor, text)) {
            return Ok(key);
        }
        Key::of_text(text).ok_or_else(|| {
            wrong(format!(
                "key is {:?}, expected the text of a key: parts joined by \":\", in which \
                 everything but letters, digits and -._/@!$&'()*+,;=? is written as %3A",
                shown(text)
            ))
        })
    }

    /// The key that a view shows in this row.
    fn key_of_row(&self, path: &str, row: &str) -> Result<Key, Refused> {
        let is_it = |key: &str| self.limits.monitor.row(path, key) == row;
        let mut own = self
            .limits
            .denied_keys()
            .into_iter()
            .filter(|one| *one.path == *path);
        if let Some(one) = own.find(|one| is_it(one.key.as_str())) {
            return Ok(one.key);
        }
        let of_fleet = most_limited(&self.limits).0.into_iter();
        let of_fleet = of_fleet.filter(|it| it.path == path).map(|it| it.key);
        let listed = self.limits.let_through().list().into_iter();
        let listed = listed.filter(|it| *it.path == *path);
        let mut keys = of_fleet.chain(listed.map(|it| it.key.to_string()));
        match keys.find(|key| is_it(key)) {
            // Parts that a client chose may look like an address, and what stands in Redis like no key.
            Some(key) => Key::of_text(&key)
                .ok_or_else(|| wrong("this row has no key: something else wrote it".to_owned())),
            None => {
                let message = "this row is not known any more: look the key up by its text";
                Err((StatusCode::NOT_FOUND, message.to_owned()))
            }
        }
    }
}

/// The key of a secret value, behind the mark of its alternative.
fn key_of_secret(extractor: &dyn KeyExtractor, text: &str) -> Option<Key> {
    let hashed = |value: &str| (!is_hash(value)).then(|| Key::default().with_secret(value));
    if extractor.is_secret() {
        return hashed(text);
    }
    extractor.alternatives().iter().find_map(|one| {
        let value = text.strip_prefix(&*one.mark())?.strip_prefix('|')?;
        let key = one.is_secret().then(|| hashed(value))??;
        Some(one.marked(key))
    })
}

/// Whether it is what stands in a key in place of a secret value.
fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

/// The answer to a change: it goes on, and is logged, also if the client is gone meanwhile.
async fn changed(made: impl Future<Output = Result<Value, Refused>> + Send + 'static) -> Response {
    let answered = tokio::spawn(trace::in_current_span(answer(made))).await;
    answered.unwrap_or_else(|_| {
        let message = "the server shuts down: nobody knows what was changed";
        refuse(StatusCode::SERVICE_UNAVAILABLE, message)
    })
}

/// The store's answer to an operator. A store of somebody else may not come back.
async fn asked<T>(
    page: &Page,
    question: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Refused> {
    let answer = timeout(MAX_WAIT, question).await.unwrap_or_else(|_| {
        let message = format!("no answer within {MAX_WAIT:?}");
        Err(StoreError::new(StoreErrorKind::Timeout, message))
    });
    answer.map_err(|error| no_answer(page, &error))
}

/// The answer, or the refusal with its reason. A store of somebody else may panic.
async fn answer(made: impl Future<Output = Result<Value, Refused>>) -> Response {
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
    json_response(status, &json!({"error": message}))
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    let fields = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, fields, value.to_string()).into_response()
}

fn no_answer(page: &Page, error: &StoreError) -> guard::Refused {
    let message = match page.shows_keys {
        true => error.to_string(),
        false => format!("the store gave no answer: {}", error.kind().name()),
    };
    (StatusCode::SERVICE_UNAVAILABLE, message)
}

fn wrong(message: String) -> guard::Refused {
    (StatusCode::BAD_REQUEST, message)
}

/// The beginning of a text.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

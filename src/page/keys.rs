//! One key: what it has left, its reset, and letting it through.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::Page;
use super::guard::{Refused, check_change, check_form};
use super::router::PageState;
use super::views::{most_limited, quotas};
use crate::callback::{caught, guarded};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{Key, KeyExtractor};
use crate::rule::Rule;
use crate::store::{LetThrough, Store, Take};
use crate::trace;

/// How long the store may take.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The longest body of a request, in bytes.
const MAX_BODY: usize = 16 * 1_024;
/// The longest name of an actor, in characters.
const MAX_ACTOR: usize = 100;
/// The longest message of a refusal, in characters.
const MAX_MESSAGE: usize = 500;
/// How much of a wrong text is repeated, in characters.
const MAX_SHOWN: usize = 60;

/// A key of a rule that a request is about.
struct Subject {
    path: String,
    /// `None` if no rule has this path.
    rule: Option<Arc<Rule>>,
    plan: Option<String>,
    key: Key,
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
        look_at(page, Subject::read(page, body).await?).await
    })
    .await
}

/// Forgets what counts for a key.
pub(super) async fn reset(State(state): State<Arc<PageState>>, request: Request) -> Response {
    changed(async move {
        let page = &state.page;
        let (by, subject) = change(page, request).await?;
        let (path, limits) = (subject.rule()?.path(), &page.limits);
        let (row, by) = (subject.row(page), by.unwrap_or_default());
        let key = page.shown(subject.key.as_str());
        let found = asked(page, limits.reset(path, subject.key.clone())).await;
        if let Err((_, error)) = &found {
            trace::event!(warn: path, key, row, by, error, "the count of a key may have been reset");
        }
        let found = found?;
        limits.paths.limited.forget(path, &subject.key);
        limits.monitor().state().changes += 1;
        trace::event!(info: path, key, row, by, found, "the count of a key was reset");
        Ok(with_hint(json!({"found": found}), subject))
    })
    .await
}

/// Lets a key through for a while, or ends that.
pub(super) async fn let_through(State(state): State<Arc<PageState>>, request: Request) -> Response {
    changed(async move {
        let page = &state.page;
        let (by, subject) = change(page, request).await?;
        let longest = LetThrough::MAX_TIME.as_secs();
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
        let key = page.shown(subject.key.as_str());
        let fleet = limits.shared_store().fleet();
        let is_accepted = match &fleet {
            Some(fleet) => asked(page, fleet.let_through(&one)).await,
            None => Ok(true),
        };
        if let Err((_, error)) = &is_accepted {
            trace::event!(warn: path, key, row, by, seconds, error, "a key may be let through");
        }
        if !is_accepted? || !limits.let_key_through(one, fleet.is_some()) {
            let message = format!("{} keys are let through already", LetThrough::MAX);
            return Err((StatusCode::CONFLICT, message));
        }
        trace::event!(info: path, key, row, by, seconds, "a key is let through");
        let ends_in = (seconds > 0).then_some(seconds as f64);
        Ok(with_hint(json!({"ends_in_s": ends_in}), subject))
    })
    .await
}

/// Who changes something, if they may, and of which key.
async fn change(page: &Page, request: Request) -> Result<(Option<String>, Subject), Refused> {
    let (head, body) = request.into_parts();
    check_form(&head)?;
    check_change(page, &head)?;
    let actor = page.actor.as_ref();
    let actor = actor.map(|actor| caught("actor", "", || actor(&head)));
    let actor = actor.transpose().map_err(|_| {
        let message = "the actor could not be told, nothing was changed";
        (StatusCode::INTERNAL_SERVER_ERROR, message.to_owned())
    })?;
    let by = actor
        .flatten()
        .map(|by| by.chars().take(MAX_ACTOR).collect());
    Ok((by, Subject::read(page, body).await?))
}

async fn look_at(page: &Page, subject: Subject) -> Result<Value, Refused> {
    let Subject { key, plan, .. } = &subject;
    let rule = subject.rule()?;
    let path = rule.path();
    let last = || page.limits.last_chosen(rule, key);
    let chosen = match plan {
        Some(plan) => rule.of_plan(plan),
        None => last(),
    };
    let own = || Arc::clone(rule).for_no_plan();
    let take = Take::new(chosen.clone().unwrap_or_else(own), key.clone());
    let state = asked(page, page.limits.shared_store().peek(&take)).await?;
    let mut quotas = quotas(take.rule().policies());
    for (quota, state) in quotas.iter_mut().zip(state.quotas()) {
        quota["remaining"] = state.remaining().into();
        quota["reset_in_s"] = state.reset_after().as_secs_f64().into();
    }
    let fits = state.remaining() >= rule.cost();
    let let_through = page.limits.let_through().time_of(path, key.as_str());
    let is_enforced = !rule.is_shadow() && page.limits.rules().guard().get(path).is_some();
    Ok(json!({
        "rule": path,
        "row": subject.row(page),
        "key": page.shows_keys.then(|| key.as_str()),
        "allowed": fits || let_through.is_some() || !is_enforced,
        "plan": take.rule().plan(),
        "hint": subject.hint.clone().or_else(|| hint_of_plans(rule, chosen.is_some())),
        "quotas": quotas,
        "let_through_in_s": let_through.map(|it| it.as_secs_f64()),
    }))
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

fn with_hint(mut answer: Value, subject: Subject) -> Value {
    if let Some(hint) = subject.hint {
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
        let extractors = page.limits.extractors(path, rule.as_deref());
        let (hint, key) = match (string("key")?, string("row")?) {
            (Some(text), None) => {
                key_of(&extractors, text).map(|key| (hint(&extractors, &key), key))?
            }
            (None, Some(row)) => (None, page.key_of_row(path, row)?),
            _ => return Err(wrong("expected either key or row".to_owned())),
        };
        let plan = plan.map(str::to_owned);
        Ok(Self {
            path: path.to_owned(),
            rule,
            plan,
            key,
            hint,
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
        page.limits.monitor().row(&self.path, self.key.as_str())
    }
}

/// The key that one of the extractors makes of this text, or else the one that has it.
fn key_of(extractors: &[Arc<dyn KeyExtractor>], text: &str) -> Result<Key, Refused> {
    let keys = extractors.iter().filter_map(|it| it.key_of_text(text));
    // An address may be taken for a token as well.
    let key = keys.min_by_key(|key| !key.is_address);
    let address = || Some(text.parse::<IpAddr>().ok()?.into());
    let key = key.or_else(address).or_else(|| Key::of_text(text));
    key.ok_or_else(|| {
        wrong(format!(
            "key is {:?}, expected the text of a key: parts joined by \":\", in which everything \
             but letters, digits and -._/@!$&'()*+,;=? is written as %3A",
            shown(text)
        ))
    })
}

impl Page {
    /// The key that a view shows in this row.
    fn key_of_row(&self, path: &str, row: &str) -> Result<Key, Refused> {
        let is_it = |key: &str| self.limits.monitor().row(path, key) == row;
        let own = self.limits.paths.limited.most_denied(usize::MAX).0;
        let mut own = own.into_iter().filter(|one| *one.path == *path);
        if let Some(one) = own.find(|one| is_it(one.key.as_str())) {
            return Ok(one.key);
        }
        self.limits.monitor().want_fleet();
        let of_fleet = most_limited(&self.limits).0.into_iter();
        let of_fleet = of_fleet.filter(|it| it.path == path).map(|it| it.key);
        let listed = self.limits.let_through().list().into_iter();
        let listed = listed.filter(|it| *it.path == *path);
        let mut keys = of_fleet.chain(listed.map(|it| it.key.to_string()));
        match keys.find(|key| is_it(key)) {
            // Parts that a client chose may look like an address, and what is stored in Redis like no
            // key.
            Some(key) => Key::of_text(&key)
                .ok_or_else(|| wrong("this row has no key: something else wrote it".to_owned())),
            None => {
                let message = "this row is not known any more: look the key up by its text";
                Err((StatusCode::NOT_FOUND, message.to_owned()))
            }
        }
    }
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
    answer.map_err(|error| {
        let message = match page.shows_keys {
            true => error.to_string(),
            false => format!("the store gave no answer: {}", error.kind().name()),
        };
        (StatusCode::SERVICE_UNAVAILABLE, message)
    })
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

fn wrong(message: String) -> Refused {
    (StatusCode::BAD_REQUEST, message)
}

/// The beginning of a text.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

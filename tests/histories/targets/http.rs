//! An app behind a layer: header fields choose the cost and the plan, and handlers run until the
//! test says how they end. Their charges come back by their outcome, or as they settle.

use std::rc::Rc;

use ::http::{HeaderMap, Request, StatusCode};
use kit::http::{Answer, ask, number};
use kit::steps::Spec;
use tokio::sync::{mpsc, oneshot};

use super::*;

/// How a handler ends: with this many units used, or in an error.
type Ends = Arc<Mutex<HashMap<u64, oneshot::Receiver<Option<u64>>>>>;
struct Open {
    task: JoinHandle<Answer>,
    end: oneshot::Sender<Option<u64>>,
    cost: u64,
}

pub(crate) struct Http {
    name: String,
    limits: Limits,
    app: Option<Router>,
    clock: ManualClock,
    spec: Option<Rc<Spec>>,
    operator: Operator,
    given: Arc<Mutex<Option<Plan>>>,
    ends: Ends,
    enter: mpsc::UnboundedSender<Decision>,
    entered: mpsc::UnboundedReceiver<Decision>,
    serial: u64,
    charges: Vec<Option<Open>>,
    is_over: bool,
}

impl Http {
    pub(crate) fn new(name: String, make: impl FnOnce(ManualClock) -> Arc<dyn Store>) -> Self {
        let clock = ManualClock::default();
        let (enter, entered) = mpsc::unbounded_channel();
        Self {
            name,
            limits: Limits::new(Rules::default()).store(make(clock.clone())),
            app: None,
            clock,
            spec: None,
            operator: Operator::default(),
            given: Arc::default(),
            ends: Ends::default(),
            enter,
            entered,
            serial: 0,
            charges: Vec::new(),
            is_over: false,
        }
    }

    /// The route of a path; its layer asks for the rule of now.
    fn app(&self, path: &str) -> Router {
        let (ends, enter) = (Arc::clone(&self.ends), self.enter.clone());
        let handler = async move |request: Request<Body>| {
            let serial = number(request.headers(), "x-serial").expect("a serial number");
            let end = ends.lock().expect("no panic").remove(&serial);
            let decision = Decision::from_extensions(request.extensions());
            let charges = Charges::from_extensions(request.extensions());
            enter.send(decision.expect("decided").clone()).ok();
            match end.expect("it is called once").await.ok().flatten() {
                None => StatusCode::INTERNAL_SERVER_ERROR,
                Some(used) => {
                    charges.settle(used).await.expect("an answer");
                    StatusCode::OK
                }
            }
        };
        let given = Arc::clone(&self.given);
        let text = |fields: &HeaderMap, name| -> Option<String> {
            Some(fields.get(name)?.to_str().ok()?.to_owned())
        };
        let layer = self.limits.layer(path);
        let layer = layer.cost(|head| number(&head.headers, "x-cost").expect("a cost"));
        let layer = layer.plan(|head| head.headers.get("x-plan")?.to_str().ok());
        let layer = layer.plan_value(move |head| {
            text(&head.headers, "x-given")?;
            given.lock().expect("no panic").clone()
        });
        Router::new().route("/", any(handler).layer(layer))
    }

    async fn take(&mut self, step: &Played, cost: u64) -> Fact {
        self.serial += 1;
        let (end, ends) = oneshot::channel();
        self.ends
            .lock()
            .expect("no panic")
            .insert(self.serial, ends);
        let mut fields = format!("x-serial: {}, x-cost: {cost}", self.serial);
        self.operator.act(&self.limits, step).await;
        let given = Operator::value(&self.limits, step);
        if given.is_some() {
            *self.given.lock().expect("no panic") = given;
            fields += ", x-given: yes";
        } else if !step.plan.is_multiple_of(RAISED) {
            fields += &format!(", x-plan: {}", step.plan % RAISED);
        }
        let app = self.app.clone().expect("it is made");
        let mut task = tokio::spawn(async move { ask(&app, "/", &fields).await });
        tokio::select! {
            biased;
            Some(decision) = self.entered.recv() => {
                if cost > 0 {
                    self.charges.push(Some(Open { task, end, cost }));
                } else {
                    end.send(Some(0)).ok();
                    task.await.expect("no panic");
                }
                fact(&decision, charged(&decision), false)
            }
            answer = &mut task => {
                let answer = answer.expect("no panic");
                let denied = answer.decision();
                assert_eq!(answer.status, 429, "{answer:?}");
                fact(denied, None, false)
            }
        }
    }

    fn given_back(&self, path: &str) -> u64 {
        self.limits
            .snapshot()
            .rule(path)
            .expect("a rule")
            .refunded_units
    }

    async fn refund(&mut self, path: &str, charge: usize, units: u64) -> u64 {
        let Open { task, end, cost } = self.charges[charge].take().expect("it is open");
        let before = self.given_back(path);
        let used = cost.checked_sub(units).filter(|used| *used > 0);
        end.send(used).ok();
        task.await.expect("no panic");
        assert!(self.limits.flush(PATIENT).await, "refunds are answered");
        self.given_back(path) - before
    }
}

impl Target for Http {
    fn name(&self) -> &str {
        &self.name
    }

    async fn play(&mut self, step: &Played) -> Option<Vec<Fact>> {
        let has_gone_back = step.now < self.clock.now() && self.clock.now() > 1_000_000_000;
        self.is_over |= has_gone_back || step.spec.is_joint();
        let is_lacking = matches!(
            step.act,
            Act::Hold(_) | Act::Release(_) | Act::Renew(_) | Act::Evict(_)
        );
        let asks_more = matches!(step.act, Act::Owe(_, Some(_)));
        self.is_over |= is_lacking || asks_more;
        if self.is_over {
            return None;
        }
        self.clock.set(step.now);
        let path = step.take.rule().path();
        if self.spec.as_ref() != Some(&step.spec) {
            let rule = (*step.spec.rule(path)).clone();
            let rule = rule.with_refund_on(["5xx"]).expect("valid");
            self.limits.rules().replace(Rules::from_iter([rule]));
            self.spec = Some(Rc::clone(&step.spec));
        }
        // They are in use from now on, whatever the step does.
        if self.app.is_none() {
            self.app = Some(self.app(path));
        }
        Some(match &step.act {
            Act::Take(costs) => {
                let mut facts = Vec::new();
                for cost in costs {
                    facts.push(self.take(step, *cost).await);
                }
                facts
            }
            Act::Refund(charge, units) => {
                vec![Fact::Units(self.refund(path, *charge, *units).await)]
            }
            Act::Reset => {
                let key = step.take.key().clone();
                vec![Fact::Reset(
                    self.limits.reset(path, key).await.expect("an answer"),
                )]
            }
            _ => {
                let any = tidegate::decision::Receipt::new(0, 0, 1);
                let charged = self.limits.shared_store().owe(&step.take, &any).await;
                vec![Fact::Units(charged.expect("an answer"))]
            }
        })
    }
}

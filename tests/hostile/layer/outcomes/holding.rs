//! Requests whose handlers overlap, and end as the test says.

use tokio::sync::{mpsc, oneshot};

use super::*;

type Held = Arc<Mutex<HashMap<String, oneshot::Receiver<u16>>>>;

/// A layer whose handlers wait until the test tells them their status.
pub(super) struct Holding {
    service: Wrapped,
    held: Held,
    entered: mpsc::UnboundedReceiver<()>,
    serial: u64,
}

/// A request whose handler waits.
pub(super) struct Open {
    task: JoinHandle<u16>,
    status: oneshot::Sender<u16>,
}

impl Holding {
    pub(super) fn new(limits: &Limits, path: &str) -> Self {
        let held = Held::default();
        let (enter, entered) = mpsc::unbounded_channel();
        let receivers = Arc::clone(&held);
        let handler = service_fn(move |request: Request<Body>| {
            let id = text(request.headers(), "x-id").expect("an id").to_owned();
            let receiver = receivers.lock().expect("no panic").remove(&id);
            enter.send(()).ok();
            async move {
                let status = receiver.expect("it is called once").await;
                let status = status.expect("the test says it");
                let response = Response::builder().status(status).body(Body::empty());
                Ok::<_, io::Error>(response.expect("valid"))
            }
        });
        let layer = limits.layer(path).cost(|head| {
            let cost = text(&head.headers, "x-cost").expect("a cost");
            cost.parse().expect("a number")
        });
        let service = around(&layer, BoxCloneSyncService::new(handler));
        Self {
            service,
            held,
            entered,
            serial: 0,
        }
    }

    /// `None` if it was denied.
    pub(super) async fn begin(&mut self, name: &str, cost: u64) -> Option<Open> {
        self.serial += 1;
        let (status, receiver) = oneshot::channel();
        let id = self.serial.to_string();
        self.held
            .lock()
            .expect("no panic")
            .insert(id.clone(), receiver);
        let request = Request::get("/")
            .header("x-key", name)
            .header("x-id", id)
            .header("x-cost", cost.to_string());
        let request = request.body(Body::empty()).expect("valid");
        let asked = self.service.clone().oneshot(request);
        let mut task =
            tokio::spawn(async move { asked.await.expect("no error").status().as_u16() });
        tokio::select! {
            biased;
            Some(()) = self.entered.recv() => Some(Open { task, status }),
            answer = &mut task => {
                assert_eq!(answer.expect("no panic"), 429);
                None
            }
        }
    }
}

impl Open {
    pub(super) async fn end(self, status: u16) {
        self.status.send(status).expect("it waits");
        assert_eq!(self.task.await.expect("no panic"), status);
    }

    pub(super) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.is_err());
    }
}

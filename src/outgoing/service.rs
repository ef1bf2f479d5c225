use std::future::poll_fn;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::outgoing::Outgoing;
use super::ready_call::OutgoingBody;
use crate::callback::BoxFuture;
use crate::layer::CallError;
#[cfg(doc)]
use crate::limits::Limits;
use crate::rule::Statuses;

impl<S> Layer<S> for Outgoing {
    type Service = OutgoingService<S>;

    fn layer(&self, client: S) -> OutgoingService<S> {
        OutgoingService {
            client,
            outgoing: self.clone(),
        }
    }
}

/// A client whose calls wait for their turns: see [`Limits::outgoing`].
///
/// The body of an answer is an [`OutgoingBody`], which observes the trailers of gRPC.
///
/// It is always ready: a call that waits keeps no connection of the client ready. A call that gets
/// no turn fails with [`CallError::Denied`] or [`CallError::Failed`], and what the client itself
/// fails with is a [`CallError::Inner`]. A client of tonic shows a call without a turn as a status
/// `Unknown`, whose source is that error, and failures of its `Channel` as without this layer.
///
/// Inside of a retry layer it needs [`wait`](Outgoing::wait): else the repeated call is denied, and
/// the partner's own answer is lost. A layer that hedges charges both calls.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tidegate::Limits;
/// use tidegate::limits::OutgoingService;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
/// let client: OutgoingService<_> = Limits::new([]).outgoing("partner").layer(client);
/// let body = client.oneshot(Request::new(())).await?.into_body();
/// assert_eq!(body.into_inner(), "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OutgoingService<S> {
    client: S,
    outgoing: Outgoing,
}

impl<S, B, R> Service<Request<B>> for OutgoingService<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    B: Send + 'static,
    R: Send,
{
    type Response = Response<OutgoingBody<R>>;
    type Error = CallError<S::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let (mut outgoing, mut client) = (self.outgoing.clone(), self.client.clone());
        let key = (outgoing.key)(&head);
        let cost = outgoing.cost_by.as_ref().map(|cost| cost(&head));
        outgoing.cost = cost.or(outgoing.cost);
        let request = Request::from_parts(head, body);
        Box::pin(async move {
            let mut turn = outgoing.ready(key).await?;
            let answer = match poll_fn(|cx| client.poll_ready(cx)).await {
                Ok(()) => client.call(request).await,
                Err(error) => Err(error),
            };
            let (head, body) = match answer {
                Ok(answer) => answer.into_parts(),
                Err(error) => {
                    turn.failed();
                    return Err(CallError::Inner(error));
                }
            };
            let used = outgoing.used_by.as_ref().and_then(|used| used(&head));
            used.into_iter().for_each(|used| turn.settle(used));
            // A status of gRPC that is not in the head comes in the trailers.
            let turn = if Statuses::new(head.status, &head.headers).lack_grpc() {
                turn.obey(head.status, &head.headers);
                Some(turn)
            } else {
                turn.observe_response(head.status, &head.headers);
                None
            };
            Ok(Response::from_parts(head, OutgoingBody::new(body, turn)))
        })
    }
}

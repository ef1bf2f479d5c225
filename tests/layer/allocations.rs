//! What the layer allocates for a request.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use tidegate::{Headers, MemoryStore, RateLimitLayer};
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};

use crate::stores::Far;
use crate::{WINDOW, get};

async fn ok(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::empty()))
}

/// How often the last of many requests allocates: the first ones fill the store.
fn allocations<S>(mut service: S) -> u64
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    // Spans allocate if some other test listens to them.
    let _silence = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let mut allocations = 0;
    for _ in 0..100 {
        let request = get("/");
        let count = allocation_counter::measure(|| {
            let response = runtime.block_on(service.call(request));
            assert!(response.is_ok());
        });
        allocations = count.count_total;
    }
    allocations
}

#[test]
fn a_ready_answer_costs_no_allocation_but_what_shows_it() {
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000).store(MemoryStore::new());
    let bare = allocations(service_fn(ok));
    // The extensions of the request and of the response: a map, its table, and a box each for the
    // decision and the charges; and the charge.
    let silent = allocations(layer.clone().headers(Headers::None).layer(service_fn(ok)));
    assert_eq!(silent - bare, 9);
    // The fields: the map of header fields, and the value of `RateLimit`.
    let shown = allocations(layer.layer(service_fn(ok)));
    assert!(shown - silent <= 4, "{shown} after {silent}");
}

#[test]
fn a_denial_costs_no_allocation_but_its_response() {
    let layer = RateLimitLayer::new("p", WINDOW, 1).store(MemoryStore::new());
    let bare = allocations(service_fn(ok));
    // The document and its box, the two parts of the map of header fields, and the extension: a
    // map, its table and a box.
    let silent = allocations(layer.clone().headers(Headers::None).layer(service_fn(ok)));
    assert_eq!(silent - bare, 7);
    // The values of `RateLimit` and of `Retry-After`.
    let shown = allocations(layer.layer(service_fn(ok)));
    assert_eq!(shown - silent, 2);
}

#[test]
fn a_pending_answer_costs_one_allocation_beside_the_stores() {
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000);
    let near = allocations(
        layer
            .clone()
            .store(MemoryStore::new())
            .layer(service_fn(ok)),
    );
    let far = Far::new(std::time::Duration::ZERO);
    // The store's future, and that of what becomes of the request.
    let far = allocations(layer.store(far).layer(service_fn(ok)));
    assert_eq!(far - near, 2);
}

//! Any one flight since the connection began, whatever it is for: introductions, scripts, the first
//! questions.

use super::callers::{Kind, World};
use super::*;

/// Until everybody is answered: the first attempt to connect may take its whole time-out.
const BOUND: Duration = Duration::from_secs(8);

const KINDS: [Kind; 6] = [
    Kind::Take,
    Kind::Peek,
    Kind::UsedUp,
    Kind::Available,
    Kind::HeldLock,
    Kind::Look,
];

async fn any_flight(fault: FlightFault) {
    let server = Server::start();
    let prepared = World::new(&server, "world").await;
    for skip in 0..6 {
        let proxy = Proxy::start_with_flights(&server.url).await;
        proxy.break_flight(fault, "", skip);
        let redis = Redis::connect_lazy(&*proxy.url).expect("a valid address");
        let world = Arc::new(prepared.moved(proxy, redis));
        let load = Load::of_many(&world, &KINDS, 1);
        recovers(&world, load, &format!("{fault:?} of flight {skip}")).await;
    }
}

/// Waits until the fault has hit; then everybody is answered, and by nobody else's answer.
async fn recovers(world: &World, load: Load, case: &str) {
    let _ = traced(&world.proxies[0]).await;
    let began = Instant::now();
    load.all_answered(began).await;
    let took = began.elapsed();
    let records = load.end().await;
    let trace = world.proxies[0].fault_trace();
    let case = format!("{case} with {} commands", trace.commands);
    println!("{case}: {took:?}, {} connections", world.accepted());
    let wrong = records.iter().find(|one| one.is_wrong());
    assert!(wrong.is_none(), "{case}: {wrong:?}");
    assert!(took < BOUND, "{case}: {took:?}");
}

/// The connection is dead, and a flight of that which is opened beside it is broken.
async fn any_flight_of_a_second_link(fault: FlightFault) {
    let server = Server::start();
    let world = Arc::new(World::new(&server, "world").await);
    for skip in 0..4 {
        let load = Load::of_many(&world, &KINDS, 1);
        load.all_answered(Instant::now()).await;
        world.proxies[0].present(Mode::BlackHole);
        world.proxies[0].break_flight(fault, "", skip);
        recovers(&world, load, &format!("{fault:?} of flight {skip}")).await;
    }
}

#[tokio::test]
async fn a_second_link_that_is_broken() {
    any_flight_of_a_second_link(FlightFault::Lose(Part::All)).await;
    any_flight_of_a_second_link(FlightFault::Add(Extra::EarlierReply, Spot::Before)).await;
}

tests! {
    any_flight_is_lost: any_flight(FlightFault::Lose(Part::All));
    half_of_any_flight_is_lost: any_flight(FlightFault::Lose(Part::FirstHalf));
}

#[tokio::test]
async fn a_reply_too_many_before_any_flight() {
    any_flight(FlightFault::Add(Extra::Integer, Spot::Before)).await;
    any_flight(FlightFault::Add(Extra::EarlierReply, Spot::Before)).await;
}

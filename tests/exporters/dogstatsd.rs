use metrics_exporter_dogstatsd::DogStatsDBuilder;
use tidegate_exporter_tests::{counted, daemon};

#[tokio::test]
async fn it_shows_what_the_snapshots_count() {
    let (port, shown) = daemon();
    let builder = DogStatsDBuilder::default().with_remote_address(format!("127.0.0.1:{port}"));
    let builder = builder.expect("an address");
    let expected = counted(|| builder.install().expect("the first one")).await;
    let shown = shown.lock().expect("no panic").clone();
    assert_eq!(shown, expected);
}

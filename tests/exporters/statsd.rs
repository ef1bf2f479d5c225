use metrics_exporter_statsd::StatsdBuilder;
use tidegate_exporter_tests::{counted, daemon};

#[tokio::test]
async fn it_shows_what_the_snapshots_count() {
    let (port, shown) = daemon();
    let recorder = StatsdBuilder::from("127.0.0.1", port)
        .build(None)
        .expect("an address");
    let install = || {
        metrics::set_global_recorder(recorder)
            .map_err(drop)
            .expect("the first one")
    };
    let expected = counted(install).await;
    let shown = shown.lock().expect("no panic").clone();
    assert_eq!(shown, expected);
}

use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_exporter_tests::{Counters, counted, note};

#[tokio::test]
async fn it_shows_what_the_snapshots_count() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let install = || {
        metrics::set_global_recorder(recorder)
            .map_err(drop)
            .expect("the first one")
    };
    let expected = counted(install).await;
    let mut counters = Counters::new();
    for line in shown.render().lines() {
        // `name{key="value",key="value"} 5`
        if let Some((name, rest)) = line.split_once('{') {
            let (labels, number) = rest.split_once("} ").expect("a value");
            let labels = labels
                .split(',')
                .map(|it| it.split_once('=').expect("a label"));
            let labels = labels.map(|(key, value)| (key, value.trim_matches('"')));
            note(
                &mut counters,
                name,
                labels,
                number.parse().unwrap_or_default(),
            );
        }
    }
    assert_eq!(counters, expected);
}

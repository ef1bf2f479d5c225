//! The first failures of a process, as the real Prometheus sees them. `tests/observe.sh` runs it.

use std::net::TcpListener;

use super::{exporter, limits};
use crate::*;

/// Of a rule with a layer, and of one that only checks use, which nobody has declared.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Prometheus: tests/observe.sh"]
async fn prometheus_sees_them() {
    for program in ["prometheus", "prometheus-3"] {
        let gone = RedisStore::connect_lazy("redis://127.0.0.1:1").expect("a valid address");
        let limits = limits([per_hour("layered", 5), per_hour("checked", 5)]).store(gone);
        let app = app(limits.layer("layered"));
        let (recorder, shown) = (Arc::new(exporter().build_recorder()), limits.clone());
        let metrics = any(async move || {
            metrics::with_local_recorder(&*recorder, || shown.publish_metrics());
            recorder.handle().render()
        });
        let address = serve(Router::new().route("/metrics", metrics)).await;
        let prometheus = Prometheus::start(program, address);
        prometheus
            .shows_both("count by (rule) (count_over_time(tidegate_errors_total[1m]) > 1)")
            .await;
        for _ in 0..40 {
            assert_eq!(status(&app, "/").await, 503);
            assert!(limits.check("checked", "alice").await.is_err());
        }
        prometheus
            .shows_both("sum by (rule) (increase(tidegate_errors_total[1m])) > 30")
            .await;
        prometheus
            .shows_both("ALERTS{alertname=\"TidegateStoreFails\"}")
            .await;
    }
}

/// It scrapes every second, and has the alerts of the docs.
struct Prometheus {
    process: Child,
    url: String,
    _folder: TempDir,
}

impl Prometheus {
    fn start(program: &str, scraped: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = free.local_addr().expect("an address");
        drop(free);
        let alerts = kit::root().join("docs/metrics/alerts.yml");
        let file = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [alerts],
            "scrape_configs": [
                { "job_name": "app", "static_configs": [{ "targets": [scraped] }] },
            ],
        });
        let path = folder.path().join("prometheus.yml");
        fs::write(&path, file.to_string()).expect("is written");
        let process = Command::new(program)
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={own}"))
            .stderr(Stdio::null())
            .spawn()
            .expect("it is installed");
        Self {
            process,
            url: format!("http://{own}"),
            _folder: folder,
        }
    }

    /// The query comes to have a sample of each rule.
    async fn shows_both(&self, query: &str) {
        let began = Instant::now();
        loop {
            let promtool = Command::new("promtool")
                .args(["query", "instant", &self.url, query])
                .output();
            let promtool = promtool.expect("promtool runs");
            let shown = String::from_utf8_lossy(&promtool.stdout);
            if ["checked", "layered"].iter().all(|it| shown.contains(it)) {
                return;
            }
            assert!(began.elapsed() < PATIENT, "{query}: {promtool:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

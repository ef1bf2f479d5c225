//! One call for each take where nothing else happens: also for the first take, and after a rest.

use kit::cluster::Plan;
use kit::load::take;
use kit::process::Process;

use crate::*;

/// Longer than any silence is tolerated for.
const REST: Duration = millis(1_500);

/// How often these commands were called on these servers so far.
fn calls(nodes: &[Process], commands: &[&str]) -> u64 {
    nodes.iter().map(|node| node.calls(commands)).sum()
}

/// Every take is one `EVALSHA`, and nothing besides: no text, no other look at the server.
async fn one_call_each(nodes: &[Process], address: &str, is_lazy: bool) {
    let counted = ["evalsha", "eval", "script|load", "cluster|slots", "hello"];
    let store = match is_lazy {
        true => RedisStore::connect_lazy(address).expect("a valid address"),
        false => RedisStore::connect(address).await.expect("a running Redis"),
    };
    let store = store.timeout(PATIENT);
    let paths: Vec<_> = (0..12).map(|at| format!("p{at}")).collect();
    let mut asked = calls(nodes, &["evalsha"]);
    let mut all = None;
    // The second round is behind a rest.
    for round in 0..2 {
        for path in &paths {
            // While there is no connection, nothing is sent.
            let take = take(path, 10);
            eventually("it is allowed", async || store.take(&take).await.is_ok()).await;
            asked += 1;
            assert_eq!(calls(nodes, &["evalsha"]), asked, "{path} in round {round}");
        }
        let all = all.get_or_insert_with(|| calls(nodes, &counted) - paths.len() as u64);
        *all += paths.len() as u64;
        assert_eq!(calls(nodes, &counted), *all, "round {round}");
        if round == 0 {
            sleep(REST).await;
        }
    }
}

#[tokio::test]
async fn a_quiet_server() {
    let both = [false, true].map(|is_lazy| async move {
        let server = [Process::start(&["--save", ""])];
        one_call_each(&server, &server[0].url(), is_lazy).await;
    });
    join_all(both).await;
}

#[tokio::test]
async fn a_quiet_cluster() {
    let both = [false, true].map(|is_lazy| async move {
        let cluster = Cluster::start(&Plan::default());
        one_call_each(&cluster.nodes, &cluster.url(), is_lazy).await;
    });
    join_all(both).await;
}

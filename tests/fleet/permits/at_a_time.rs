use super::backend::Backend;
use super::served::{KEYS, MAX, WORDS, WORKER};
use super::*;

/// Of all processes. `TIDEGATE_AT_A_TIME` says another number.
const REQUESTS: u64 = 40_000;
/// Longer than these processes ever stand still.
const LEASE: Duration = Duration::from_secs(4);

fn start(server: &Redis, process: usize, requests: u64) -> Child {
    let (folder, lease) = (server.folder().display(), LEASE.as_millis());
    let instructions = format!("{} {folder} {process} {requests} {lease} {MAX}", server.url);
    start_worker(WORKER, &instructions)
}

/// Ends the process at once when so many requests have begun.
fn kill(child: &mut Child, process: usize, backend: &Backend, at: u64) {
    while backend.begun() < at {
        let ended = child.try_wait().expect("our child");
        assert!(ended.is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("is killed");
    child.wait().expect("our child");
    backend.killed(process);
}

/// Four processes, of which one is killed and started again, and one is killed. Their requests end,
/// panic, or are left by their clients.
#[test]
fn no_more_than_max_run_at_a_time() {
    let _machine = MACHINE.blocking_lock();
    let server = Redis::start();
    let requests = from_env("TIDEGATE_AT_A_TIME", REQUESTS);
    let backend = Backend::start(server.folder(), MAX as usize);
    let began = Instant::now();
    // As many as if one had never been started.
    let share = requests.div_ceil(PROCESSES as u64 - 1);
    let workers = (0..PROCESSES).map(|process| start(&server, process, share));
    let mut workers: Vec<_> = workers.collect();
    kill(&mut workers[0], 0, &backend, requests / 8);
    workers[0] = start(&server, PROCESSES, share);
    kill(&mut workers[1], 1, &backend, requests / 4);
    drop(workers.remove(1).wait());
    let outputs = outputs(workers);
    let (held, _) = permits(&server);
    let ended = Instant::now();

    let [served, denied, left, panicked, failed] = WORDS.map(|word| sum(&outputs, word));
    let counted = backend.end();
    println!("{:?}: {counted:?}", ended - began);
    println!("{served} served, {denied} denied, {left} left, {panicked} panicked, {failed} failed");
    let (most, above) = (counted.most, counted.above);
    assert_eq!((most, above), (MAX as usize, 0), "{counted:?}");
    assert_eq!(counted.running, 0, "a request has not ended");
    assert!(served + denied + left + panicked + failed >= requests);
    let is_enough = counted.begun > requests / 4;
    assert!(is_enough, "this test asked for too little");
    assert!(failed < requests / 100, "{failed} failed");
    assert_eq!(held, 0, "of {}", KEYS * MAX);
    // Their keys expire.
    while permits(&server).1 > 0 {
        assert!(ended.elapsed() < 3 * LEASE, "{:?}", permits(&server));
        std::thread::sleep(Duration::from_millis(50));
    }
}

//! Java and Rust log in as one user: the ACL lines of `docs/security.md` for limiters and locks.

use kit::millis;

use super::fleet::Language::Java;
use super::fleet::Process;

const PAGE: &str = include_str!("../../../docs/security.md");

/// Every call that both languages know.
const CALLS: &str = "
    trySetRate app:all 0 5 1000, setRate app:all 0 5 1000, updateRate app:all 0 5 300
    tryAcquire app:all 5, tryAcquireFor app:all 1 5000, acquire app:all 4, acquire app:all 2
    available app:all, release app:all 1, expire app:all 60000, delete app:all
    trySetRate app:each 1 5 300, tryAcquire app:each 5, acquire app:each 1
    available app:each, delete app:each
    lock app:lock, tryLock app:lock, lockFor app:lock 20000, isLocked app:lock, count app:lock
    unlock app:lock, unlock app:lock, unlock app:lock, lockOnce app:once, forceUnlock app:once
    tryLockForLease app:lock 100 9000";

#[test]
#[ignore = "needs Java: tests/interop.sh"]
fn java_logs_in_as_the_same_user() {
    let server = kit::Redis::start();
    for begin in ["ACL SETUSER primitives on ", "ACL SETUSER primitives ~"] {
        let at = PAGE.find(begin).expect("the page has such a line");
        let (line, _) = PAGE[at..].split_once("```").expect("the block ends");
        server.run::<()>(line);
    }
    let url = server.url.replace("//", "//primitives:PASSWORD@");
    let mut java = Process::start(Java, "serve", &url, "");
    let check = |said: String| assert!(!said.contains("\terror "), "{said}");
    for call in CALLS
        .split([',', '\n'])
        .map(str::trim)
        .filter(|it| !it.is_empty())
    {
        check(java.ask(&format!("a {call}")));
    }
    // One that waits listens.
    java.tell("b tryLockFor app:lock 60000");
    while !server.is_listened_to("redisson_lock__channel:{app:lock}") {
        std::thread::sleep(millis(20));
    }
    java.tell("a unlock app:lock");
    (0..2).for_each(|_| check(java.line(|_| true)));
    check(java.ask("b unlock app:lock"));
}

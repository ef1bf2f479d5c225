//! Servers that write nothing, or not everything: whoever was charged is told the error, and
//! nothing was written. Takes that are denied are answered.

use std::time::{Duration, Instant};

use kit::Redis;
use redis::{ServerErrorKind, Value};
use tidegate::Algorithm;

use super::history::{BEGINNING, Cost, KeyRows, QuotaNumbers, RowNumbers, RuleNumbers, questions};
use super::play::{file, source};

const MAX: u64 = 3;
const WINDOW: u64 = 60_000_000;

/// An answer to one take.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Denied,
    Allowed,
    Error(String),
}

/// A connection that calls the script of an algorithm.
struct Caller {
    connection: redis::Connection,
    algorithm: Algorithm,
    script: redis::Script,
    /// Whether the usual case is skipped.
    skips: bool,
}

impl Caller {
    /// Each of these keys takes so many units in one call.
    fn take(&mut self, keys: &[(&str, u64)], now: u64) -> redis::RedisResult<Vec<Answer>> {
        let quota = QuotaNumbers {
            max: MAX,
            window: WINDOW,
            burst: MAX,
            sub_windows: 7,
        };
        let rule = RuleNumbers {
            quotas: vec![quota],
            limiting: 1,
            has_bound: false,
            lease: 0,
        };
        let rows = keys.iter().enumerate().map(|(place, (_, units))| KeyRows {
            key: u8::try_from(place).expect("few"),
            rule: 0,
            rows: vec![RowNumbers {
                cost: Cost::Units(*units),
                takes: 1,
                deadline: None,
            }],
        });
        let rows: Vec<_> = rows.collect();
        let mut question = questions(self.algorithm, &[rule], &rows, now);
        question[0] = self.skips.into();
        let mut call = self.script.prepare_invoke();
        for (key, _) in keys {
            call.key(key);
        }
        call.arg(question).arg(7).arg(now);
        let reply: Vec<u8> = call.invoke(&mut self.connection)?;
        Ok(answers(&reply[16..]))
    }

    /// What stands under all keys. Each one has an expiry.
    fn contents(&mut self) -> Vec<(String, Vec<u8>)> {
        let keys: redis::RedisResult<Vec<String>> =
            redis::cmd("KEYS").arg("*").query(&mut self.connection);
        let mut keys = keys.expect("keys");
        keys.sort();
        let contents = keys.into_iter().map(|key| {
            let mut command = |name| {
                let mut command = redis::cmd(name);
                command.arg(&key).query::<Value>(&mut self.connection)
            };
            let Ok(Value::Int(millis)) = command("PTTL") else {
                panic!("no time to live");
            };
            assert!(millis > 0, "{key} has no expiry: {millis}");
            let Ok(Value::BulkString(bytes)) = command("DUMP") else {
                panic!("no dump");
            };
            (key, bytes)
        });
        contents.collect()
    }
}

fn answers(mut reply: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !reply.is_empty() {
        let (answer, length) = match reply[0] {
            0 => (Answer::Denied, 24),
            1 => (Answer::Allowed, 24),
            4 => {
                let length = 3 + usize::from(u16::from_be_bytes([reply[1], reply[2]]));
                let text = String::from_utf8_lossy(&reply[3..length]).into_owned();
                (Answer::Error(text), length)
            }
            other => panic!("verdict {other}"),
        };
        answers.push(answer);
        reply = &reply[length..];
    }
    answers
}

/// For each algorithm, with its usual case and without: `before` on a server with a key that has
/// units left and one that has none, and `after`.
fn check(
    server: &Redis,
    refuse: impl Fn(&Redis),
    ask: impl Fn(&mut Caller),
    allow: impl Fn(&Redis),
) {
    for algorithm in Algorithm::ALL {
        for skips in [false, true] {
            let mut caller = Caller {
                connection: server.connection(),
                algorithm,
                script: redis::Script::new(&source(&file(algorithm))),
                skips,
            };
            let charged = caller.take(&[("half", 1), ("full", MAX)], BEGINNING);
            assert_eq!(
                charged.expect("a reply"),
                [Answer::Allowed, Answer::Allowed]
            );
            refuse(server);
            ask(&mut caller);
            allow(server);
            run(server, "FLUSHALL");
        }
    }
}

fn run(server: &Redis, command: &str) {
    let mut words = command.split(' ');
    let mut call = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| {
        call.arg(word);
    });
    let done = call.exec(&mut server.connection());
    done.unwrap_or_else(|error| panic!("{command}: {error}"));
}

/// Who was charged gets the error, whether the call has one key or several.
fn fails_with(caller: &mut Caller, code: &str) {
    let before = caller.contents();
    let keys = [
        ("half", 1),
        ("full", 1),
        ("new", 1),
        ("half-too", 0),
        ("new-too", 2),
    ];
    let answers = caller.take(&keys, BEGINNING + 5_000).expect("a reply");
    let is_error = |answer: &Answer| matches!(answer, Answer::Error(text) if text.contains(code));
    let case = format!(
        "{code}, {:?}, {}: {answers:?}",
        caller.algorithm, caller.skips
    );
    assert!(is_error(&answers[0]), "{case}");
    assert_eq!(answers[1], Answer::Denied, "{case}");
    assert!(is_error(&answers[2]), "{case}");
    assert_eq!(answers[3], Answer::Allowed, "it only looks: {case}");
    assert!(is_error(&answers[4]), "{case}");
    for key in ["half", "new"] {
        let answers = caller
            .take(&[(key, 1)], BEGINNING + 5_000)
            .expect("a reply");
        assert!(
            matches!(&answers[..], [answer] if is_error(answer)),
            "{case}"
        );
    }
    let answers = caller.take(&[("full", 1)], BEGINNING + 5_000);
    assert_eq!(answers.expect("a reply"), [Answer::Denied], "{case}");
    assert_eq!(caller.contents(), before, "{case}");
}

#[test]
fn a_server_out_of_memory() {
    let server = Redis::start();
    let set = |bytes: &str| run(&server, &format!("CONFIG SET maxmemory {bytes}"));
    check(
        &server,
        |_| set("1"),
        |caller| fails_with(caller, "OOM"),
        |_| set("0"),
    );
}

/// A dump that cannot be written, as on a full disk.
#[test]
fn a_server_whose_dumps_fail() {
    let server = Redis::start_with(&["--enable-protected-configs", "yes"]);
    run(&server, "CONFIG SET dbfilename folder");
    std::fs::create_dir(server.folder().join("folder")).expect("a folder");
    std::fs::write(server.folder().join("folder/in-it"), "").expect("a file");
    run(&server, "CONFIG SET stop-writes-on-bgsave-error no");
    let mut save = redis::cmd("CONFIG");
    save.arg("SET").arg("save").arg("3600 1");
    save.exec(&mut server.connection()).expect("is set");
    run(&server, "BGSAVE");
    let started = Instant::now();
    loop {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("persistence")
            .query(&mut server.connection())
            .expect("an answer");
        if info.get::<String>("rdb_last_bgsave_status").as_deref() == Some("err") {
            break;
        }
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "the dump works"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let stop = |word: &str| {
        run(
            &server,
            &format!("CONFIG SET stop-writes-on-bgsave-error {word}"),
        )
    };
    check(
        &server,
        |_| stop("yes"),
        |caller| fails_with(caller, "MISCONF"),
        |_| stop("no"),
    );
}

/// The whole call fails, so that its connection looks for the master; but what needs no write is
/// answered.
#[test]
fn a_replica() {
    let server = Redis::start();
    let ask = |caller: &mut Caller| {
        let before = caller.contents();
        let calls: [&[(&str, u64)]; 3] = [
            &[("half", 1)],
            &[("new", 1)],
            &[("full", 1), ("half", 1), ("new", 1)],
        ];
        for keys in calls {
            let error = caller.take(keys, BEGINNING + 5_000).expect_err("a replica");
            let kind = redis::ErrorKind::Server(ServerErrorKind::ReadOnly);
            assert_eq!(
                error.kind(),
                kind,
                "{:?}, {}: {error}",
                caller.algorithm,
                caller.skips
            );
        }
        let answers = caller.take(&[("full", 1), ("half", 0)], BEGINNING + 5_000);
        assert_eq!(answers.expect("a reply"), [Answer::Denied, Answer::Allowed]);
        assert_eq!(caller.contents(), before);
    };
    let follow = |server: &Redis| server.follow("redis://127.0.0.1:1");
    check(&server, follow, ask, |server| {
        run(server, "REPLICAOF NO ONE")
    });
}

/// What counts no longer may be removed first, and then the server writes all that follows. Each
/// answer is true of its own key.
#[test]
fn a_server_out_of_memory_with_keys_that_count_no_longer() {
    let server = Redis::start();
    let set = |bytes: &str| run(&server, &format!("CONFIG SET maxmemory {bytes}"));
    let ask = |caller: &mut Caller| {
        let (keys, before) = (["new", "half", "full", "new-too"], caller.contents());
        let answers = caller.take(&keys.map(|key| (key, 1)), BEGINNING + WINDOW + 5_000);
        let after = caller.contents();
        for (key, answer) in keys.into_iter().zip(answers.expect("a reply")) {
            let of = |contents: &[(String, Vec<u8>)]| {
                let found = contents.iter().find(|(name, _)| name == key);
                found.map(|(_, bytes)| bytes.clone())
            };
            let is_changed = of(&before) != of(&after);
            assert_eq!(answer == Answer::Allowed, is_changed, "{key}: {answer:?}");
        }
    };
    check(&server, |_| set("1"), ask, |_| set("0"));
}

/// A user who may not set an expiry leaves no key without one.
#[test]
fn a_user_without_expiries() {
    let server = Redis::start();
    run(&server, "ACL SETUSER limited on >secret ~* +@all -pexpire");
    let url = server.url.replace("//", "//limited:secret@");
    let ask = |caller: &mut Caller| {
        let client = redis::Client::open(url.clone()).expect("a valid address");
        caller.connection = client.get_connection().expect("a running server");
        // Later slices, in which an expiry is set again.
        for later in [0, 5_000, WINDOW / 2, 2 * WINDOW] {
            for keys in [&["new"][..], &["half"], &["half", "new-too", "full"]] {
                let keys: Vec<_> = keys.iter().map(|key| (*key, 1)).collect();
                let known = caller.contents().len();
                let answers = caller.take(&keys, BEGINNING + later);
                let is_allowed = answers.is_ok_and(|answers| answers.contains(&Answer::Allowed));
                assert!(is_allowed || caller.contents().len() <= known);
            }
        }
    };
    check(&server, |_| {}, ask, |_| {});
}

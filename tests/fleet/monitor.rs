//! What the server is seen to write.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kit::Redis;
use kit::windows::Grant;

/// `redis-cli MONITOR`, which shows what scripts write.
pub(crate) struct Monitor {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Monitor {
    pub(crate) fn start(server: &Redis) -> Self {
        let mut child = Command::new("redis-cli")
            .args(["-u", &server.url, "MONITOR"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-cli starts");
        let stdout = child.stdout.take().expect("is piped");
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            use std::io::BufRead;
            for line in std::io::BufReader::new(stdout)
                .lines()
                .map_while(Result::ok)
            {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let first = lines
            .recv_timeout(Duration::from_secs(20))
            .expect("redis-cli answers");
        assert_eq!(first, "OK");
        Self { child, lines }
    }

    /// From `"ZADD" "CurrentLimiter:weighted" "<stamp>" "<entry>"`: an entry has the running total,
    /// so the difference to the one before is what was granted.
    pub(crate) fn grants(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut before = 0;
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(2)) {
            let Some((_, entry)) = line.split_once("\"ZADD\" \"CurrentLimiter:weighted\" \"")
            else {
                continue;
            };
            let (stamp, entry) = entry.split_once("\" \"").expect("a score and a member");
            let total = total_of(entry);
            // A log that was forgotten as a whole starts again at zero.
            let cost = total.checked_sub(before).unwrap_or(total);
            before = total;
            let stamp = stamp.parse().expect("microseconds");
            grants.push(Grant { stamp, cost });
        }
        grants
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The seven bytes behind the first one, out of the quoting of `MONITOR`.
fn total_of(quoted: &str) -> u64 {
    let mut chars = quoted.bytes();
    let mut byte = || {
        let mut next = || chars.next().expect("an entry is longer");
        match next() {
            b'\\' => match next() {
                b'x' => {
                    let digits = [next(), next()];
                    let digits = std::str::from_utf8(&digits).expect("hexadecimal digits");
                    u8::from_str_radix(digits, 16).expect("hexadecimal digits")
                }
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 7,
                b'b' => 8,
                plain => plain,
            },
            plain => plain,
        }
    };
    let _mark = byte();
    (0..7).fold(0, |total, _| (total << 8) | u64::from(byte()))
}

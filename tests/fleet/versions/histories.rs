//! Histories at random, by a clock of the test: whichever version is asked, it answers as memory
//! does. So no version loses, resets or misreads what the other has counted.

use super::player::Player;
use super::*;

/// Who is asked: up, and back.
const ROLL: [&[usize]; 5] = [&[0, 1], &[0, 1, 2, 3], &[2, 3], &[0, 1, 2, 3], &[0, 1]];
const VERSIONS: [Version; 4] = [OLD, OLD, NEW, NEW];
const KEPT: Duration = Duration::from_millis(900);
const SLOW: &str = "histories that took too long to judge";
const RULES: &str = include_str!("../../versions/histories.toml");

/// Draws the lines of a history.
struct History {
    random: Random,
    algorithm: &'static str,
    rules: &'static str,
    /// What was drawn, if files change nothing of it: windows and bursts, and max of GCRA. Of what
    /// they change older versions charge the earlier counters along.
    drawn: std::collections::BTreeMap<String, String>,
    now: u64,
    /// Numbers of charges that are not given back, with their costs, and who was asked.
    charges: Vec<(u64, u64, usize)>,
}

impl History {
    fn new(number: u64) -> Self {
        let mut random = Random::new(number);
        let all: Vec<_> = RULES.split("---").collect();
        Self {
            rules: all[random.below(all.len() as u64) as usize],
            algorithm: Algorithm::ALL[(number % 4) as usize].name(),
            drawn: std::collections::BTreeMap::new(),
            now: 1_800_000_000_000_777,
            charges: Vec::new(),
            random,
        }
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    fn rules(&mut self) -> String {
        let is_gcra = self.algorithm == "gcra";
        let text = self.rules.replace("ALGORITHM", self.algorithm);
        let text = text.replace('\n', "\t");
        let is_kept: &[&str] = match is_gcra {
            true => &["WINDOW", "LONG", "BURST", "MAX"],
            false => &["WINDOW", "LONG", "BURST"],
        };
        let mut words = vec!["rules ".to_owned()];
        for part in text.split_inclusive(|it: char| !it.is_ascii_uppercase()) {
            let (name, end) = part.split_at(part.len() - 1);
            let drawn = match name {
                "MAX" => self.pick(&["1", "2", "3", "4", "7", "9", "40", "1000"]),
                "WINDOW" => self.pick(&["1ms", "3ms", "8ms", "20ms", "64ms", "2s", "60s"]),
                "LONG" => self.pick(&["100ms", "500ms", "1s"]),
                "BURST" if is_gcra => self.pick(&["", "", ", burst = 1", ", burst = 11"]),
                "BURST" => "",
                other => other,
            };
            let mut drawn = drawn.to_owned();
            if is_kept.contains(&name) {
                let kept = self.drawn.entry(name.to_owned());
                drawn = kept.or_insert(drawn).clone();
            }
            words.extend([drawn, end.to_owned()]);
        }
        words.concat()
    }

    /// What happens next, and who is asked of these.
    fn step(&mut self, number: u64, among: &[usize]) -> (String, usize) {
        let edge = self.pick(&[0, 0, 0, 1, 999, 1_000, 3_000, 8_000, 20_000, 500_000]);
        self.now += self.random.below(edge + 1);
        let (now, asked, kind) = (self.now, self.pick(among), self.random.below(100));
        let keys = match self.rules.contains("subject") {
            true => ["user=alice,everyone=", "user=bob,everyone="],
            false => ["alice", "bob"],
        };
        let request = format!("h {} {}", self.pick(&["-", "-", "pro"]), self.pick(&keys));
        let costs = self.pick(&["1", "1", "2", "3", "1,1", "1,2,1,3"]);
        let step = match kind {
            0..4 => return (self.rules(), asked),
            4..10 => format!("peek {request}"),
            10..12 => format!("reset {request}"),
            12..20 if self.rules.contains("outgoing") => format!("hold {request} {}", kind - 12),
            20..45 if !self.charges.is_empty() => return self.charge_step(),
            _ => format!("take {number} {request} {costs}"),
        };
        // What is charged at the same instant as a reset is perhaps not given back.
        self.now += u64::from(step.starts_with("reset"));
        (format!("{now} {step}"), asked)
    }

    /// What becomes of a charge, by the process that has it.
    fn charge_step(&mut self) -> (String, usize) {
        let at = self.random.below(self.charges.len() as u64) as usize;
        let (charge, cost, asked) = self.charges[at];
        let units = 1 + self.random.below(cost);
        let number = if self.rules.contains("max-concurrent") {
            4
        } else {
            2
        };
        let step = match self.random.below(number) {
            0 => format!("refund {charge} {units}"),
            1 => format!("owe {charge} {units}"),
            2 => format!("renew {charge}"),
            _ => format!("release {charge}"),
        };
        if step.starts_with("ref") || step.starts_with("rel") {
            self.charges.remove(at);
        }
        (format!("{} {step}", self.now), asked)
    }

    /// Remembers what a take was charged, and counts answers.
    fn note(&mut self, words: &[&str], asked: usize, right: &str, seen: &mut Seen) {
        let kind = words.iter().take(2).find(|it| it.parse::<u64>().is_err());
        let mut count = |what: &str| {
            let name = format!("{} {what}", self.algorithm);
            *seen.entry(name).or_default() += 1;
        };
        count(kind.expect("a word"));
        if let ["take", number, .., costs] = words[1..] {
            let number: u64 = number.parse().expect("a number");
            let told = right.split(" | ").zip(costs.split(','));
            for (at, (told, cost)) in (number..).zip(told) {
                let verdict = told.split(' ').next().expect("a word");
                count(verdict);
                if verdict == "allowed" {
                    let cost = cost.parse().expect("a number");
                    self.charges.push((at, cost, asked));
                }
            }
        }
    }
}

/// How often each word was played, or answered.
type Seen = std::collections::BTreeMap<String, u64>;

/// Plays a history with these processes, two of each version or of one; returns why an answer is
/// wrong. Redis forgets keys by the real time: what took long proves nothing.
async fn play(number: u64, processes: &mut [Process], seen: &mut Seen) -> Result<(), String> {
    let (began, mut history) = (Instant::now(), History::new(number));
    let clock = ManualClock::default();
    let mut memory = Player::new(Arc::new(MemoryStore::new().clock(clock.clone())), clock);
    let (mut story, mut serial) = (String::new(), 0);
    for among in ROLL {
        for _ in 0..6 + history.random.below(10) {
            serial += 10;
            let (line, asked) = match serial {
                10 => (history.rules(), 0),
                _ => history.step(serial, among),
            };
            let right = memory.play(&line).await;
            let right = right.map_err(|error| format!("{line}: {error}"))?;
            let number = processes.len();
            let (is_rules, asked) = (line.starts_with("rules"), asked % number);
            for at in (0..number).filter(|at| is_rules || *at == asked) {
                let answer = processes[at].ask(&line);
                story += &format!("{}: {line}\n    {answer}\n", processes[at].who);
                *seen.entry(processes[at].who.to_owned()).or_default() += 1;
                if answer != right && began.elapsed() > KEPT {
                    *seen.entry(SLOW.to_owned()).or_default() += 1;
                    return Ok(());
                } else if answer != right {
                    return Err(format!("{story}but it is {right}"));
                }
            }
            history.note(&line.split(' ').collect::<Vec<_>>(), asked, &right, seen);
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "tests/versions.sh builds both versions"]
async fn each_version_answers_as_memory_does() {
    let server = Redis::start();
    let mut processes = VERSIONS.map(|version| player(version, &server.url));
    let (began, mut seen, mut number) = (Instant::now(), Seen::new(), 0);
    let mut older = 0;
    while began.elapsed() < share() {
        let _: () = server.run("FLUSHDB");
        if let Err(story) = play(number, &mut processes, &mut seen).await {
            // What the older version does by itself, such as a defect that was mended since, is no
            // matter of two versions.
            let (mut again, mut alone) = (Seen::new(), Vec::new());
            for of_one in processes.chunks_mut(2) {
                let _: () = server.run("FLUSHDB");
                alone.push(play(number, of_one, &mut again).await.is_ok());
            }
            let is_older = alone == [false, true] || again.contains_key(SLOW);
            let seed = kit::random::of_the_run();
            assert!(
                is_older,
                "TIDEGATE_SEED={seed}, history {number}, alone {alone:?}\n{story}"
            );
            older += 1;
        }
        number += 1;
        if number.is_multiple_of(256) {
            println!("{number} histories, {} s", began.elapsed().as_secs());
            // Of each version one is started anew.
            for at in [0, 2] {
                processes[at] = player(VERSIONS[at], &server.url);
            }
        }
    }
    println!("| what | times |\n|---|--:|\n| histories | {number} |");
    let is_judged = older * 25 < number.max(100);
    assert!(
        is_judged,
        "{older} of {number}: the older version errs too often"
    );
    println!("| of which the older version alone errs | {older} |");
    seen.iter()
        .for_each(|(what, times)| println!("| {what} | {times} |"));
    let slow = seen.get(SLOW).copied().unwrap_or(0);
    assert!(
        number > 20 && (slow + older) * 5 < number,
        "too few were judged"
    );
}

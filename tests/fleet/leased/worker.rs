use kit::unix_micros as now;

use super::role::Role;
use super::windows::{Use, write_all};
use super::*;

const TASKS: u64 = 16;
/// The demand of the fleet in parts of the quota, one after the other.
const DEMAND: [f64; 6] = [3.0, 0.5, 0.9, 1.5, 0.9, 0.2];

/// What one process is to do.
pub(super) struct Step {
    pub(super) url: String,
    /// Where it puts what it used.
    pub(super) file: PathBuf,
    pub(super) role: Role,
    pub(super) window: Duration,
    pub(super) max: u64,
    /// When all processes begin, in microseconds.
    pub(super) begin: u64,
    pub(super) lasts: Duration,
}

impl Step {
    pub(super) fn to_words(&self) -> String {
        let (window, lasts) = (self.window.as_millis(), self.lasts.as_millis());
        let (file, role) = (self.file.display(), self.role);
        let Self {
            url, max, begin, ..
        } = self;
        format!("{url} {file} {role:?} {window} {max} {begin} {lasts}")
    }

    fn from_words(words: &[String]) -> Self {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        Self {
            url: words[0].clone(),
            file: PathBuf::from(&words[1]),
            role: Role::named(&words[2]),
            window: Duration::from_millis(number(3)),
            max: number(4),
            begin: number(5),
            lasts: Duration::from_millis(number(6)),
        }
    }

    /// The units that one task of this process asks for between two instants after the beginning.
    fn demand(&self, before: u64, after: u64) -> f64 {
        let window = self.window.as_micros() as f64;
        // Not the window, nor a part of it: so the steps move through the windows.
        let step = (after as f64 / (0.7 * window)) as usize + self.role.steps_ahead();
        // What a machine that was busy has missed is not made up for.
        let elapsed = (after - before).min(50_000) as f64;
        let of_the_fleet = DEMAND[step % DEMAND.len()] * elapsed * self.max as f64 / window;
        of_the_fleet * self.role.demand() / 100.0 / TASKS as f64
    }
}

#[derive(Default)]
struct Used {
    uses: Vec<Use>,
    leased: u64,
}

impl Used {
    /// Asks for a unit. Returns whether it was granted.
    async fn take(&mut self, store: &dyn Store, take: &Take) -> bool {
        let from = now();
        let decision = store.take(take).await.expect("a decision");
        // The next whole microsecond.
        let until = now() + 1;
        let Some(receipt) = decision.receipt() else {
            return false;
        };
        self.uses.push(match decision.source() {
            Source::Lease => {
                self.leased += 1;
                [from, until]
            }
            // The server says when it decided, by the clock of this machine.
            _ => {
                let stamp = receipt.stamp();
                assert!((from..=until).contains(&stamp), "{from} {stamp} {until}");
                [stamp; 2]
            }
        });
        true
    }
}

/// Asks for the units that are due, tick after tick. All tasks of a process tick together.
async fn ask(step: Arc<Step>, store: Arc<dyn Store>, take: Take) -> Used {
    let lasts = u64::try_from(step.lasts.as_micros()).expect("short");
    let (mut used, mut due, mut before) = (Used::default(), 0.0, 0);
    let tick = step.role.tick(&take);
    while before < lasts {
        let next = (now().max(step.begin) - step.begin) / tick * tick + tick;
        let pause = (step.begin + next).saturating_sub(now());
        tokio::time::sleep(Duration::from_micros(pause)).await;
        let after = now().max(step.begin) - step.begin;
        due += step.demand(before, after);
        before = after;
        while due >= 1.0 {
            let granted = used.take(&*store, &take).await;
            // After a denial the task pauses.
            due = if granted { due - 1.0 } else { 0.0 };
        }
    }
    used
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by another test"]
async fn worker_uses_units() {
    let Some(words) = instructions() else { return };
    let step = Arc::new(Step::from_words(&words));
    let store = step.role.store(&step.url).await;
    let take = Take::new(step.role.rule(step.max, step.window), Key::from("hot"));
    let tasks = (0..TASKS).map(|_| ask(Arc::clone(&step), Arc::clone(&store), take.clone()));
    let mut all = Used::default();
    for used in in_tasks(tasks).await {
        all.uses.extend(used.uses);
        all.leased += used.leased;
    }
    write_all(&all.uses, &step.file);
    println!("\ngranted {}\nleased {}", all.uses.len(), all.leased);
}

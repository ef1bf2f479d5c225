use crate::*;

/// How a process of the fleet asks for units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It leases.
    Leases,
    /// It has the rule with the lease, and asks Redis for each unit.
    Plain,
    /// Its rule has no lease.
    WithoutLease,
    /// Its rule has a max that is two percent too large.
    Above,
}

/// A fiftieth of the window where that is shorter.
const LEASE: Duration = Duration::from_millis(50);

/// The processes of the test.
pub(super) fn fleet() -> [Role; 4] {
    [Role::Leases, Role::Leases, Role::Plain, Role::WithoutLease]
}

impl Role {
    const ALL: [Self; 4] = [Self::Leases, Self::Plain, Self::WithoutLease, Self::Above];

    pub(super) fn named(name: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|role| format!("{role:?}") == name)
            .expect("a role")
    }

    /// The part of the fleet's demand, in percent.
    pub(super) const fn demand(self) -> f64 {
        match self {
            Self::Leases => 35.0,
            Self::Plain | Self::Above => 15.0,
            Self::WithoutLease => 60.0,
        }
    }

    /// Without a lease, units return earlier: the process asks for them when others do not.
    pub(super) const fn steps_ahead(self) -> usize {
        match self {
            Self::WithoutLease => 5,
            _ => 0,
        }
    }

    /// How often it asks, in microseconds. A process that leases asks shortly before a lease ends,
    /// so that it uses units as late as it may.
    pub(super) fn tick(self, take: &Take) -> u64 {
        match (self, take.rule().lease()) {
            (Self::Leases, Some(lease)) => {
                u64::try_from(lease.as_micros() * 9 / 10).expect("short")
            }
            _ => 2_000,
        }
    }

    pub(super) fn rule(self, max: u64, window: Duration) -> Arc<Rule> {
        let more = if self == Self::Above { max / 50 } else { 0 };
        let max = max + more;
        let rule = kit::owned_rule("leased", max, window);
        Arc::new(match self {
            Self::WithoutLease => rule,
            _ => rule.with_lease(LEASE).expect("a sliding log"),
        })
    }

    pub(super) async fn store(self, url: &str) -> Arc<dyn Store> {
        let store = kit::load::store(url).await;
        match self {
            Self::Leases => Arc::new(Resilient::bare(store)),
            _ => Arc::new(store),
        }
    }
}

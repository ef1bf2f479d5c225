use uuid::Uuid;

/// The names of what belongs to one limiter.
pub(super) struct Keys([String; 6]);

impl Keys {
    pub(super) fn new(name: &str, client: &str) -> Self {
        let of = |what: &str| match name.contains('{') {
            true => format!("{name}:{what}"),
            false => format!("{{{name}}}:{what}"),
        };
        let (value, permits, epoch) = (of("value"), of("permits"), of("epoch"));
        Self([
            name.to_owned(),
            format!("{value}:{client}"),
            format!("{permits}:{client}"),
            format!("{epoch}:{client}"),
            value,
            permits,
        ])
    }

    /// In the order in which the scripts know them.
    pub(super) fn all(&self) -> [&str; 6] {
        let Self([name, own_value, own_permits, own_epoch, value, permits]) = self;
        [name, value, permits, own_value, own_permits, own_epoch]
    }
}

/// A grant as it is kept: the length of its identity, the identity, the permits.
pub(super) fn member(permits: u64) -> Vec<u8> {
    let identity = Uuid::new_v4().into_bytes();
    let permits = u32::try_from(permits).unwrap_or(u32::MAX).to_le_bytes();
    [&[16][..], &identity, &permits].concat()
}

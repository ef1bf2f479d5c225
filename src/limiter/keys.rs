use crate::connection::hash_tag::tagged;

/// The names of what belongs to one limiter.
pub(super) struct Keys([String; 9]);

impl Keys {
    pub(super) fn new(name: &str, client: &str) -> Self {
        let tagged = tagged(name);
        let of = |what: &str| format!("{tagged}:{what}");
        let of_client = |what: &str| format!("{}:{client}", of(what));
        Self([
            name.to_owned(),
            of("value"),
            of("permits"),
            of_client("value"),
            of_client("permits"),
            of_client("epoch"),
            of("waiting"),
            of("waiting_clients"),
            of_client("waiting"),
        ])
    }

    /// In the order in which the scripts know them.
    pub(super) fn all(&self) -> [&str; 9] {
        self.0.each_ref().map(String::as_str)
    }
}

use crate::connection::tagged;

/// The Redis keys of one limiter, in the order of `KEYS` in `lua/include/permits.lua`.
pub(super) struct LimiterKeys([String; 10]);

impl LimiterKeys {
    pub(super) fn new(name: &str, client: &str) -> Self {
        let tagged = tagged(name);
        let key = |suffix: &str| format!("{tagged}:{suffix}");
        let client_key = |suffix: &str| format!("{tagged}:{suffix}:{client}");
        Self([
            name.to_owned(),
            key("value"),
            key("permits"),
            client_key("value"),
            client_key("permits"),
            client_key("epoch"),
            key("waiting"),
            key("waiting_clients"),
            client_key("waiting"),
            key("forgotten"),
        ])
    }

    pub(super) fn all(&self) -> [&str; 10] {
        self.0.each_ref().map(String::as_str)
    }
}

use std::collections::BTreeSet;

/// More paths than an application has routes; paths beyond it are not remembered one by one.
const MAX_PATHS: usize = 10_000;

/// The paths that layers limit.
#[derive(Debug, Default)]
pub(super) struct UsedPaths {
    paths: BTreeSet<Box<str>>,
    /// Whether there were more paths than are remembered.
    is_exceeded: bool,
}

impl UsedPaths {
    pub(super) fn add(&mut self, path: &str) {
        if self.paths.contains(path) {
            return;
        }
        match self.paths.len() < MAX_PATHS {
            true => _ = self.paths.insert(path.into()),
            false => self.is_exceeded = true,
        }
    }

    /// Whether a layer limits this path. Beyond the bound any path may be such a one.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.is_exceeded || self.paths.contains(path)
    }

    /// Those that are remembered, in alphabetical order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|path| &**path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_bound_every_path_counts_as_used() {
        let mut used = UsedPaths::default();
        let add = |used: &mut UsedPaths, number: usize| used.add(&number.to_string());
        (0..MAX_PATHS).for_each(|number| add(&mut used, number));
        add(&mut used, 0);
        assert!(used.contains("0") && !used.contains("other"));
        add(&mut used, MAX_PATHS);
        assert!(used.contains("other"));
        assert_eq!(used.paths.len(), MAX_PATHS);
    }
}

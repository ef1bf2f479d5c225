//! The mistakes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::shape::find;

pub(crate) struct Mutant {
    pub(crate) part: &'static str,
    pub(crate) what: &'static str,
    pub(crate) file: &'static str,
    /// It stands exactly once in the file: as it is, or with other names.
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Mutant {
    /// The file of this tree to change, and its text with the mistake in it.
    ///
    /// # Panics
    ///
    /// If the mistake's place is not found, or more than one.
    pub(crate) fn put_into(&self, tree: &Path) -> (PathBuf, String) {
        let placed = self.try_put_into(tree);
        placed.unwrap_or_else(|places| panic!("{places} places: {self}: {}", self.from))
    }

    /// The same; an error says how many places look alike.
    pub(crate) fn try_put_into(&self, tree: &Path) -> Result<(PathBuf, String), usize> {
        let file = tree.join(self.file);
        let placed = match fs::read_to_string(&file) {
            Ok(original) => self.put_into_text(&original),
            Err(_) => Err(0),
        };
        match placed {
            Ok(mutated) => Ok((file, mutated)),
            Err(0) => self.search(&sources(tree)),
            Err(places) => Err(places),
        }
    }

    /// The text with the mistake in it. An error says how many places look alike.
    pub(crate) fn put_into_text(&self, original: &str) -> Result<String, usize> {
        match original.matches(self.from).count() {
            0 => {}
            1 => return Ok(original.replace(self.from, self.to)),
            places => return Err(places),
        }
        match &find(self.from, original)[..] {
            [found] => Ok(found.replace(original, self.to)),
            places => Err(places.len()),
        }
    }

    /// The code has moved to another file.
    fn search(&self, files: &[(PathBuf, String)]) -> Result<(PathBuf, String), usize> {
        let places = files.iter().flat_map(|(file, text)| {
            let found = find(self.from, text).into_iter();
            found.map(move |found| (found, file, text))
        });
        let places: Vec<_> = places.collect();
        let most = places.iter().map(|(found, ..)| found.kept()).max();
        let best = places
            .iter()
            .filter(|(found, ..)| Some(found.kept()) == most);
        match &best.collect::<Vec<_>>()[..] {
            [(found, file, text)] => Ok(((*file).clone(), found.replace(text, self.to))),
            best => Err(best.len()),
        }
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} ({})", self.part, self.what, self.file)
    }
}

/// All sources of a tree that a mutant may change.
fn sources(tree: &Path) -> Vec<(PathBuf, String)> {
    let mut folders = vec![tree.join("src"), tree.join("lua")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).expect("a text");
                sources.push((path, text));
            }
        }
    }
    sources
}

const fn mutant(
    part: &'static str,
    what: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
) -> Mutant {
    Mutant {
        part,
        what,
        file,
        from,
        to,
    }
}

const LOG: &str = "src/algorithm/sliding_log.rs";
const ENTRIES: &str = "src/algorithm/entries.rs";
const WINDOW: &str = "src/algorithm/sliding_window.rs";
const GCRA: &str = "src/algorithm/gcra.rs";
const FIXED: &str = "src/algorithm/fixed_window.rs";
const TALLIES: &str = "src/algorithm/counters.rs";
const COUNT: &str = "src/algorithm/count.rs";
const LOG_LUA: &str = "lua/sliding_log.lua";
const LOG_TRIM_LUA: &str = "lua/include/log_trim.lua";
const WINDOW_LUA: &str = "lua/sliding_window.lua";
const GCRA_LUA: &str = "lua/gcra.lua";
const FIXED_LUA: &str = "lua/fixed_window.lua";
const DECIDE_LUA: &str = "lua/include/decide.lua";
const ROW_LUA: &str = "lua/include/read_row.lua";
const COUNTERS_LUA: &str = "lua/include/counters.lua";

const PERMITS: &str = "src/limiter/memory_limiter.rs";
const PENDING: &str = "src/limiter/acquire_queue.rs";
const BATCHER: &str = "src/limiter/batcher.rs";
const FAIR_LUA: &str = "lua/limiter/acquire_fair.lua";
const LIMITER_RELEASE_LUA: &str = "lua/limiter/release.lua";
const ACQUIRE_LUA: &str = "lua/limiter/acquire.lua";
const GIVE_WAY_LUA: &str = "lua/include/give_way.lua";
const PERMITS_LUA: &str = "lua/include/permits.lua";
const LOCK_ACQUIRE_LUA: &str = "lua/lock/acquire.lua";
const LOCK_RELEASE_LUA: &str = "lua/lock/release.lua";
const HELD: &str = "src/lock/held_lease.rs";
const TURN: &str = "src/connection/subscriber/turn.rs";
const WAITERS: &str = "src/connection/subscriber/wait_queue.rs";

const CLOCK: &str = "src/connection/server_clock.rs";
const TAKE_CALL: &str = "src/store/redis/take_call.rs";
const TAKE_SCRIPT: &str = "src/store/redis/take_script.rs";
const CALLS: &str = "src/store/redis/calls.rs";
const FLIGHT: &str = "src/connection/flight.rs";
const QUEUE: &str = "src/connection/queue.rs";
const NODE: &str = "src/connection/node.rs";
const REDIRECT: &str = "src/connection/cluster/redirect.rs";
const RECONNECTOR: &str = "src/connection/reconnector.rs";
const BREAKER: &str = "src/store/breaker/state.rs";
const BREAKER_CORE: &str = "src/store/breaker/breaker.rs";
const GUARDED: &str = "src/store/guarded.rs";
const PERMIT: &str = "src/in_flight_counter.rs";
const CONNECTION: &str = "src/connection/connection.rs";
const FALLBACK: &str = "src/store/fallback.rs";
const DENIAL: &str = "src/store/denial_cache.rs";
const MARK: &str = "src/algorithm/lease_mark.rs";
const LONGER_LUA: &str = "lua/include/longer.lua";
const MARK_LUA: &str = "lua/include/mark_lease.lua";
const KEY_LEASES: &str = "src/store/leases/key_leases.rs";
const MOMENT: &str = "src/store/leases/moment.rs";
const SHARE: &str = "src/rule/share.rs";

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        "all",
        "one too many",
        TALLIES,
        "self.used + cost > self.limit",
        "self.used + cost > self.limit + 1",
    ),
    mutant(
        "all",
        "`>=` for `>`",
        TALLIES,
        "self.used + cost > self.limit",
        "self.used + cost >= self.limit",
    ),
    mutant(
        "all",
        "a peek may be denied",
        TALLIES,
        "if cost == 0 {",
        "if cost == 0 && uses.is_empty() {",
    ),
    mutant(
        "all",
        "the shortest of several waits",
        TALLIES,
        "wait(index)).max()",
        "wait(index)).min()",
    ),
    mutant(
        "log",
        "`<` for `<=` at the window's end",
        ENTRIES,
        "let has_left = |entry: &Entry| entry.stamp.saturating_add(window) <= now;",
        "let has_left = |entry: &Entry| entry.stamp.saturating_add(window) < now;",
    ),
    mutant(
        "log",
        "a unit leaves a microsecond early",
        ENTRIES,
        "let has_left = |entry: &Entry| entry.stamp.saturating_add(window) <= now;",
        "let has_left = |entry: &Entry| entry.stamp.saturating_add(window) <= now + 1;",
    ),
    mutant(
        "log",
        "takes of a span keep the first one's stamp",
        ENTRIES,
        "self.newest = Some(Entry { stamp: now, total });\n    }\n\n    fn clear",
        "let stamp = self.newest.filter(|_| now < self.span_end && self.span_end > self.resolution && self.len() > self.older.len() && now / self.resolution == self.newest().unwrap_or(0) / self.resolution).map_or(now, |newest| newest.stamp);\n        self.newest = Some(Entry { stamp, total });\n    }\n\n    fn clear",
    ),
    mutant(
        "log",
        "dropped before it has left",
        LOG,
        "let outside = self.entries.outside(now, window);",
        "let outside = self.entries.outside(now, window / 2);",
    ),
    mutant(
        "log",
        "what a longer window counts is dropped once there are newer units",
        LOG,
        "self.entries.merge_first(merged.min(outside - dropped));",
        "self.entries.drop_first(merged.min(outside - dropped));",
    ),
    mutant(
        "log",
        "what a longer window counts is told apart for ever",
        LOG,
        "self.entries.merge_first(merged.min(outside - dropped));",
        "let _ = merged.min(outside - dropped);",
    ),
    mutant(
        "log",
        "what a longer window needs is not given back",
        LOG,
        "        let units = units.min(self.behind(before));\n        match is_own",
        "        let needed = long.map_or(0, |(long, _)| long.units);\n        let units = units.min(self.behind(before)).min(self.held().saturating_sub(needed));\n        match is_own",
    ),
    mutant(
        "log",
        "a longer window is forgotten",
        LOG,
        "Some((horizon.and(self.horizon), until.max(last_until)))",
        "Some((horizon, until.max(last_until))).filter(|_| false)",
    ),
    mutant(
        "log",
        "the clock that went back is not followed",
        LOG,
        "if self.entries.newest().is_some_and(|newest| newest > now) {",
        "if self.entries.newest().is_some_and(|newest| newest > now + 60_000_000) {",
    ),
    mutant(
        "log",
        "nothing is charged under several quotas",
        LOG,
        "self.charge(now, quotas, cost);\n            uses.iter_mut().for_each(|quota_use| quota_use.used += cost);",
        "self.charge(now, quotas, cost);\n            uses.iter_mut().take(1).for_each(|quota_use| quota_use.used += cost);",
    ),
    mutant(
        "sliding window",
        "a sub-window too short to be counted in full",
        WINDOW,
        "newest.saturating_add(self.life())",
        "newest.saturating_add(self.life() - 1)",
    ),
    mutant(
        "sliding window",
        "purged after the count",
        WINDOW,
        "let left = self.entries.outside(now, self.life());",
        "let left = self.entries.outside(now + self.entries.resolution(), self.life());",
    ),
    mutant(
        "sliding window",
        "sub-windows twice as long",
        WINDOW,
        "(quota.window_micros() / u64::from(sub_windows.max(1))).max(1)",
        "(2 * quota.window_micros() / u64::from(sub_windows.max(1))).max(1)",
    ),
    mutant(
        "gcra",
        "what has drained is rounded up",
        "src/algorithm/pace.rs",
        "let (part, _) = fraction(part, self.units, self.micros);\n        let drained",
        "let (part, more) = fraction(part, self.units, self.micros);\n        let part = part + more;\n        let drained",
    ),
    mutant(
        "gcra",
        "the wait is rounded down",
        GCRA,
        "let (part, more) = fraction(part, self.micros, self.units);",
        "let (part, more) = (fraction(part, self.micros, self.units).0, 0);",
    ),
    mutant(
        "gcra",
        "the burst is max",
        GCRA,
        "            _ => quota.burst(),",
        "            _ => quota.max(),",
    ),
    mutant(
        "gcra",
        "the busy time begins anew with each charge",
        GCRA,
        "self.start += level.paces * self.pace.micros;",
        "self.start = now;",
    ),
    mutant(
        "gcra",
        "a refund does not ask what has drained",
        GCRA,
        "let refunded = refund.units.min(left.max(least)).min(whole);",
        "let refunded = refund.units.min(self.units);",
    ),
    mutant(
        "fixed window",
        "`<` for `<=` at the window's end",
        FIXED,
        "let used = match self.ends_at() <= now {",
        "let used = match self.ends_at() < now {",
    ),
    mutant(
        "fixed window",
        "each take begins the window anew",
        FIXED,
        "if level.used == 0 {\n            self.start = now;",
        "if level.used < u64::MAX {\n            self.start = now;",
    ),
    mutant(
        "fixed window",
        "a refund from the window before",
        FIXED,
        "if refund.stamp < self.start {",
        "if refund.stamp + self.life() < self.start {",
    ),
    mutant(
        "tallies",
        "a new quota begins empty",
        TALLIES,
        "        None | Some(0) => T::new(quota, sub_windows),\n        Some(units)",
        "        None | Some(0..) if known.len() < 99 => T::new(quota, sub_windows),\n        None => T::new(quota, sub_windows),\n        Some(units)",
    ),
    mutant(
        "tallies",
        "earlier quotas are not charged",
        "src/algorithm/counters.rs",
        "for (place, kept) in self.kept.iter_mut().enumerate() {",
        "for (place, kept) in self.kept.iter_mut().enumerate().take(1) {",
    ),
    mutant(
        "tallies",
        "earlier quotas are dropped",
        "src/algorithm/counters.rs",
        "let is_needed = |place: &&usize| self.kept[**place].ends_at() > now;",
        "let is_needed = |place: &&usize| self.kept[**place].ends_at() > now + 60_000_000;",
    ),
    mutant(
        "tallies",
        "a denial while the clock is back writes",
        "src/algorithm/counters.rs",
        "        if verdict != Verdict::Allowed || cost == 0 {\n            let states = states(",
        "        if verdict != Verdict::Allowed || cost == 0 {\n            if now < self.last_charge { self.last_charge = now; }\n            let states = states(",
    ),
    mutant(
        "counts",
        "another algorithm's denial replaces a state",
        COUNT,
        "        if decision.receipt().is_some() {\n            *self = count;",
        "        if true || decision.receipt().is_some() {\n            *self = count;",
    ),
    mutant(
        "plans",
        "other plans' quotas are not charged along",
        "src/rule/computed.rs",
        "        quotas.extend(others.shared_counters(&quotas, algorithm));",
        "        let _ = others.shared_counters(&quotas, algorithm);",
    ),
    mutant(
        "plans",
        "a quota that only counts denies",
        "src/algorithm/counters.rs",
        "        let uses = &mut uses[..number_that_limit(quotas)];\n        let verdict",
        "        let uses = &mut uses[..quotas.len()];\n        let verdict",
    ),
    mutant(
        "plans",
        "a log forgets what a longer window of another plan needs",
        "src/algorithm/shared_counters.rs",
        "let is_beyond = window(all) > window(own) || max(all) > max(own);",
        "let is_beyond = max(all) > max(own);",
    ),
    mutant(
        "plans",
        "a bucket that counts for all is believed when it may have lost units",
        "src/algorithm/gcra.rs",
        "        held >= capacity(&self.quota) / 2",
        "        held > capacity(&self.quota)",
    ),
    mutant(
        "plans",
        "quotas from code are made anew for every request",
        "src/rule/plans.rs",
        "        self.rules.insert(chosen, (Arc::clone(&made), self.uses));",
        "        let _ = chosen;",
    ),
    mutant(
        "plans in Lua",
        "a quota that only counts is answered",
        "lua/include/read_question.lua",
        "    rule_known, has_bound, expiry_text = rule_from,",
        "    number_limiting = number_of_quotas\n    rule_known, has_bound, expiry_text = rule_from,",
    ),
    mutant(
        "plans in Lua",
        "a log keeps the window of its own quotas only",
        LOG_LUA,
        "if window > longest.window then",
        "if false then",
    ),
    mutant(
        "plans in calls",
        "a key that is named by two questions is read once",
        GCRA_LUA,
        "local values = kind ~= NAMES_TWICE and",
        "local values =",
    ),
    mutant(
        "plans of requests",
        "an unknown plan is another plan",
        "src/rule/plans.rs",
        "        let at = plans.binary_search_by(|plan| (*plan.name).cmp(name)).ok()?;",
        "        let at = plans.binary_search_by(|plan| (*plan.name).cmp(name)).unwrap_or(0);",
    ),
    mutant(
        "plans of requests",
        "a plan has a candidate",
        "src/rule/plans.rs",
        "        made.shadow = made.shadow.filter(|_| is_own);",
        "        made.shadow = made.shadow.filter(|_| is_own || true);",
    ),
    mutant(
        "page",
        "a key is let through for ever",
        "src/layer/operator_keys.rs",
        "(!time.is_zero()).then_some(time)",
        "(!time.is_zero() || true).then_some(time)",
    ),
    mutant(
        "page",
        "what an operator ends goes on",
        "src/layer/operator_keys.rs",
        "        entries.remove(at);",
        "        let _ = entries.get(at);",
    ),
    mutant(
        "page",
        "who is let through takes the room of who is blocked",
        "src/layer/operator_keys.rs",
        "it.kind == one.kind && is_other(it)",
        "is_other(it)",
    ),
    mutant(
        "page",
        "a shadow rule denies a key that is blocked",
        "src/layer/operator_keys.rs",
        "*kind == OperatorKind::LetThrough || !rule.is_shadow()",
        "*kind == OperatorKind::LetThrough || !rule.is_shadow() || true",
    ),
    mutant(
        "page",
        "a key that is let through stays blocked",
        "lua/fleet/set_key.lua",
        "  remove(KEYS[2])\n",
        "",
    ),
    mutant(
        "page",
        "layers and checks limit a key that is let through",
        "src/layer/decide.rs",
        "return keys.limited(take);",
        "drop(keys.limited(take));",
    ),
    mutant(
        "page",
        "a read-only page changes something",
        "src/page/guard.rs",
        "    if !page.may_change {",
        "    if !page.may_change && false {",
    ),
    mutant(
        "page",
        "another site changes something",
        "src/page/guard.rs",
        "    if !origin.as_str().eq_ignore_ascii_case(host.as_str()) {",
        "    if false && !origin.as_str().eq_ignore_ascii_case(host.as_str()) {",
    ),
    mutant(
        "page",
        "a name of another site is believed",
        "src/page/guard.rs",
        "    match is_own_name(origin.host()) {",
        "    match is_own_name(origin.host()) || true {",
    ),
    mutant(
        "page",
        "a form of another site is believed",
        "src/page/guard.rs",
        "        Some(\"1\") => Ok(()),",
        "        Some(\"1\") | None => Ok(()),",
    ),
    mutant(
        "page",
        "keys are shown",
        "src/page/views.rs",
        "    let shown = |key: &str| page.shows_keys.then(|| key.to_owned());",
        "    let shown = |key: &str| (page.shows_keys || true).then(|| key.to_owned());",
    ),
    mutant(
        "page",
        "a row is a hash that anybody can make",
        "src/page/monitor.rs",
        "        hash.update(secret);\n        hash.update(path.len().to_be_bytes());",
        "        let _ = secret;",
    ),
    mutant(
        "page, counts",
        "a new key is said to have been denied once",
        "src/metrics/limited_keys.rs",
        "        (place.key.denials, place.key.error) = (fewest, fewest);",
        "        (place.key.denials, place.key.error) = (0, fewest);",
    ),
    mutant(
        "page, counts",
        "the denials of a key that lost its place are forgotten",
        "src/metrics/limited_keys.rs",
        "            (at, self.replaced(now))",
        "            (at, fewest)",
    ),
    mutant(
        "page, counts",
        "a rule that becomes busy is shown with all that it counted",
        "src/page/rates.rs",
        "                let before = match is_new(&now.path) {",
        "                let before = match is_new(&now.path) || true {",
    ),
    mutant(
        "page",
        "a change ends with its client",
        "src/page/keys.rs",
        "    let answered = tokio::spawn(trace::in_current_span(answer(made))).await;",
        "    let answered = Ok::<_, ()>(answer(made).await);",
    ),
    mutant(
        "page",
        "a store that does not come back is waited for",
        "src/page/keys.rs",
        "const MAX_WAIT: Duration = Duration::from_secs(5);",
        "const MAX_WAIT: Duration = Duration::from_secs(5_000);",
    ),
    mutant(
        "page",
        "a process that is gone stays",
        "lua/fleet/report.lua",
        "call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now - SILENCE))",
        "call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '0')",
    ),
    mutant(
        "outcome",
        "a charge is given back twice",
        "src/store/charge.rs",
        "if self.0.is_claimed.swap(true, Ordering::Relaxed) {",
        "if self.0.is_claimed.swap(false, Ordering::Relaxed) {",
    ),
    mutant(
        "outcome",
        "what was used is given back",
        "src/store/charge.rs",
        "let units = units.saturating_sub(what.used());",
        "let units = units.min(what.used().max(1));",
    ),
    mutant(
        "outcome",
        "the candidate keeps what is given back",
        "src/store/charge.rs",
        "            candidate.give_back(used);",
        "            candidate.give_back(u64::MAX);",
    ),
    mutant(
        "outcome",
        "what a layer answers is an outcome",
        "src/layer/outcome.rs",
        "if let Some(LayerResponse(denial)) = response.extensions.get() {",
        "if false && let Some(LayerResponse(denial)) = response.extensions.get() {",
    ),
    mutant(
        "outcome",
        "a denial of other limits gives back",
        "src/layer/outcome.rs",
        "return denial.as_ref().is_some_and(|it| it.refunds.is(&self.refunds));",
        "return denial.is_some();",
    ),
    mutant(
        "outcome",
        "a refund wakes nobody who waits",
        "src/metrics/open_charges.rs",
        "self.change(hash, |count| count.waiters.wake_for(units, false));",
        "",
    ),
    mutant(
        "outcome",
        "who waits looks all the time",
        "src/metrics/waiters.rs",
        "self.next_look = Some(now + LOOK_EVERY);",
        "self.next_look = None;",
    ),
    mutant(
        "outcome",
        "who leaves keeps what it was woken for",
        "src/metrics/waiters.rs",
        "if state.is_some_and(|state| state.may_ask) {",
        "if state.is_some_and(|state| state.may_ask && false) {",
    ),
    mutant(
        "outcome",
        "an HTTP status counts for a gRPC request",
        "src/layer/outcome.rs",
        "if !admitted.is_grpc {",
        "if !admitted.is_grpc || outcomes.contain_http(response.status) {",
    ),
    mutant(
        "outcome",
        "refunds without a bound",
        "src/store/refund_queue.rs",
        "(number < MAX_PENDING).then_some(number + 1)",
        "Some(number + 1).filter(|_| MAX_PENDING > 0)",
    ),
    mutant(
        "outcome",
        "a lost refund is not counted",
        "src/store/charge.rs",
        "            counters.refund_lost();",
        "            let _ = counters;",
    ),
    mutant(
        "outcome",
        "a late answer of a shadow rule stays charged",
        "src/store/refund_queue.rs",
        "*state = LateState::Unwanted { used, _place };",
        "*state = LateState::Asked;\n                drop(_place);",
    ),
    mutant(
        "refunds",
        "of many refunds some are taken for later ones",
        "src/algorithm/refunded_ranges.rs",
        "let units = runs.remove(later).units;",
        "let units = runs.remove(later - 1).units;",
    ),
    mutant(
        "refunds",
        "more than was charged",
        COUNT,
        "let units = units.min(receipt.units());",
        "let units = units.max(receipt.units());",
    ),
    mutant(
        "refunds",
        "a reset leaves the receipts of its own instant, log",
        LOG,
        "            refundable_since: now.saturating_add(1),\n            ..Self::default()",
        "            refundable_since: now,\n            ..Self::default()",
    ),
    mutant(
        "refunds",
        "a reset leaves the receipts of its own instant",
        "src/algorithm/counters.rs",
        "needed_until: now,\n                refundable_since: now.saturating_add(1),",
        "needed_until: now,\n                refundable_since: now,",
    ),
    mutant(
        "log, Lua",
        "the usual case: `<` for `<=`",
        LOG_LUA,
        "oldest_stamp, oldest_stamp <= now - window",
        "oldest_stamp, oldest_stamp < now - window",
    ),
    mutant(
        "log, Lua",
        "the usual case: what has left counts",
        LOG_LUA,
        "if is_usual then mark, _, first_base, _, _, first_stamp = unpack",
        "if is_usual then mark, _, _, _, _, first_stamp = unpack",
    ),
    mutant(
        "log, Lua",
        "the usual case: an expiry is never set anew",
        LOG_LUA,
        "or floor(stamp / slice) ~= this_slice then",
        "or stamp < 0 then",
    ),
    mutant(
        "log, Lua",
        "`<` for `<=`",
        LOG_LUA,
        "if oldest_stamp <= now - window then\n",
        "if oldest_stamp < now - window then\n",
    ),
    mutant(
        "log, Lua",
        "what has left counts",
        LOG_LUA,
        "first_stamp, first_base = entry_of(first)",
        "first_stamp = entry_of(first)",
    ),
    mutant(
        "log, Lua",
        "a set that is over stays",
        LOG_LUA,
        "is_stale and pcall('DEL', key) or",
        "is_stale and 0 or",
    ),
    mutant(
        "log, Lua",
        "an expiry is never set anew",
        LOG_LUA,
        "or stamp - stamp % slice ~= now - now % slice",
        "or stamp < 0",
    ),
    mutant(
        "log, Lua",
        "a wait for one unit too few",
        "lua/include/log_wait.lua",
        "limits[n] - cost + 1, -1",
        "limits[n] - cost + 2, -1",
    ),
    mutant(
        "log, Lua",
        "the clock that went back is not followed",
        LOG_LUA,
        "is_prepared, went_back = true, stamp > now",
        "is_prepared, went_back = true, stamp > now + 60000000",
    ),
    mutant(
        "sliding window, Lua",
        "the usual case: `<` for `<=`",
        WINDOW_LUA,
        "    if of <= now - window then",
        "    if of < now - window then",
    ),
    mutant(
        "sliding window, Lua",
        "`<` for `<=`",
        WINDOW_LUA,
        "    if stamp <= latest or",
        "    if stamp < latest or",
    ),
    mutant(
        "sliding window, Lua",
        "a unit too few has to leave",
        WINDOW_LUA,
        "limit - cost + 1)",
        "limit - cost + 2)",
    ),
    mutant(
        "gcra, Lua",
        "it drains while the clock is back",
        GCRA_LUA,
        "return used_at(counter, charged_at > now and charged_at or now)",
        "return used_at(counter, now)",
    ),
    mutant(
        "gcra, Lua",
        "the usual case: one unit too many",
        GCRA_LUA,
        "cost * takes <= burst - used and takes",
        "cost * takes <= burst - used + 1 and takes",
    ),
    mutant(
        "gcra, Lua",
        "the usual case: a part of a pace drains twice",
        GCRA_LUA,
        "start, units, used = start + paces * pace_micros, units - paces * pace_units + charged",
        "start, units, used = now, units - paces * pace_units + charged",
    ),
    mutant(
        "gcra, Lua",
        "the usual case: an expiry is never set anew",
        GCRA_LUA,
        "if raw and floor(last_charge / slice) == this_slice then",
        "if raw then",
    ),
    mutant(
        "gcra, Lua",
        "doubles for what they cannot hold",
        "lua/include/bucket.lua",
        "if product < 9007199254740992 then",
        "if product < 1e300 then",
    ),
    mutant(
        "fixed window, Lua",
        "the usual case: `<` for `<=`",
        FIXED_LUA,
        "if used == 0 or start + window <= now then",
        "if used == 0 or start + window < now then",
    ),
    mutant(
        "fixed window, Lua",
        "`<` for `<=`",
        FIXED_LUA,
        "  if counter.start + counter.window <= now then return 0 end",
        "  if counter.start + counter.window < now then return 0 end",
    ),
    mutant(
        "fixed window, Lua",
        "a window that is over goes on",
        FIXED_LUA,
        "if counter.units == 0 or counter.start + counter.window <= time then",
        "if counter.units == 0 then",
    ),
    mutant(
        "decisions, Lua",
        "one take too many of a row",
        DECIDE_LUA,
        "local fits = floor(room / cost)",
        "local fits = floor(room / cost) + 1",
    ),
    mutant(
        "decisions, Lua",
        "one unit too many",
        DECIDE_LUA,
        "elseif cost > room then",
        "elseif cost > room + 1 then",
    ),
    mutant(
        "decisions, Lua",
        "the clock that went back is not followed",
        COUNTERS_LUA,
        "local went_back = last_charge > now\n",
        "local went_back = last_charge > now + 60000000\n",
    ),
    mutant(
        "decisions, Lua",
        "a new quota begins empty",
        COUNTERS_LUA,
        "      if most > 0 then\n          pour(",
        "      if most > 1e15 then\n          pour(",
    ),
    mutant(
        "log, Lua",
        "what a longer window counts is dropped once there are newer units",
        LOG_LUA,
        "      if merged then call('ZADD', key, edge, merged) end\n",
        "",
    ),
    mutant(
        "log, Lua",
        "what becomes one entry has the units of the last of them",
        LOG_TRIM_LUA,
        "merged = pack(ENTRY, LOG_MARK, with, oldest_base, oldest_base",
        "merged = pack(ENTRY, LOG_MARK, with, base, oldest_base",
    ),
    mutant(
        "log, Lua",
        "what a longer window counts is told apart for ever",
        LOG_TRIM_LUA,
        "if of and (of > oldest_stamp or is_beyond) then",
        "if of and is_beyond then",
    ),
    mutant(
        "log, Lua",
        "sums may reach the modulus",
        LOG_TRIM_LUA,
        "local is_beyond = (total - oldest_base) % MODULUS > MAX_HELD",
        "local is_beyond = false",
    ),
    mutant(
        "refunds, Lua",
        "units of an entry that is gone do not count",
        "lua/refund/sliding_log.lua",
        "        local grown = pack(ENTRY, LOG_MARK, next_total, before, oldest_base",
        "        local grown = pack(ENTRY, LOG_MARK, next_total, with, oldest_base",
    ),
    mutant(
        "refunds, calls",
        "an error about one key is an error about all",
        "lua/include/refund_end.lua",
        "if string.find(text, 'READONLY', 1, true) then",
        "if string.find(text, '', 1, true) then",
    ),
    mutant(
        "refunds, calls",
        "a refund finds the entry of another key",
        "lua/refund/sliding_log.lua",
        "  is_changed, found_stamp = false, nil",
        "  is_changed = false",
    ),
    mutant(
        "refunds, Lua",
        "what has left is given back",
        "lua/refund/sliding_window.lua",
        "if stamp + counter.window <= now then return 0 end",
        "if stamp + counter.window < now then return 0 end",
    ),
    mutant(
        "refunds, Lua",
        "a reset leaves the receipts of its own instant",
        "lua/reset.lua",
        "local since = now + 1",
        "local since = now",
    ),
    mutant(
        "limiter",
        "a permit too many",
        PERMITS,
        "(self.total - self.expired(now, rate) + permits).saturating_sub(rate.permits())",
        "(self.total - self.expired(now, rate) + permits).saturating_sub(rate.permits() + 1)",
    ),
    mutant(
        "limiter",
        "who is behind waits for the oldest grant alone",
        PERMITS,
        "            expiring += **permits_of_grant;\n            expiring >= permits\n",
        "            expiring += **permits_of_grant;\n            expiring >= permits.min(1)\n",
    ),
    mutant(
        "limiter",
        "a dropped future keeps what it was granted",
        BATCHER,
        "        if self.is_armed {",
        "        if self.is_armed && self.grant.permits == 0 {",
    ),
    mutant(
        "limiter",
        "a place that was given up wakes nobody",
        BATCHER,
        "Ok(permits) if permits > 0 || *is_fair => return",
        "Ok(permits) if permits > 0 && (*is_fair || true) => return",
    ),
    mutant(
        "limiter",
        "a call has no deadline",
        FLIGHT,
        "command.arg(clock.at(question.deadline.at.into_std()));",
        "command.arg(clock.at(question.deadline.at.into_std()) * 2);",
    ),
    mutant(
        "limiter",
        "sleepers hear of no change",
        PENDING,
        "        self.changes += 1;\n        self.retry_at = None;\n",
        "        self.changes += 1;\n",
    ),
    mutant(
        "limiter, Lua",
        "a fair caller overtakes those before it",
        FAIR_LUA,
        "      unreserved = unreserved - permits\n",
        "      if position_of[member] then unreserved = unreserved - permits end\n",
    ),
    mutant(
        "limiter, Lua",
        "others' permits are given back",
        LIMITER_RELEASE_LUA,
        "elseif #member == 21 and string.sub(member, 2, 9) == ARGV[3] and released < wanted then",
        "elseif #member == 21 and released < wanted then",
    ),
    mutant(
        "limiter, Lua",
        "a lost set refills",
        PERMITS_LUA,
        "needs_write = needs_write or missing > 0",
        "if missing > 0 then remaining, missing = rate, 0 end",
    ),
    mutant(
        "limiter, Lua",
        "nothing is left to Redisson",
        GIVE_WAY_LUA,
        "if is_scarce then held = held_for(redisson or 0, redisson_average or 0) end",
        "",
    ),
    mutant(
        "limiter, Lua",
        "a client of Redisson that has nothing gets nothing",
        GIVE_WAY_LUA,
        "return is_trial and rate >= 20 and requested < rate and 1 or 0",
        "return is_trial and rate >= 20 and requested < rate and 0 or 0",
    ),
    mutant(
        "limiter, Lua",
        "another process is taken for Redisson",
        GIVE_WAY_LUA,
        "not (first == 0 and second == 0 or",
        "not (",
    ),
    mutant(
        "limiter, Lua",
        "who comes as one leaves is not charged, in the common way",
        ACQUIRE_LUA,
        "local change = oldest_permits - requested",
        "local change = oldest_permits",
    ),
    mutant(
        "limiter, Lua",
        "a grant whose reply was lost is charged twice",
        ACQUIRE_LUA,
        "local has_permits = is_in_doubt and still_counts(member)",
        "local has_permits = false",
    ),
    mutant(
        "limiter, Lua",
        "an old process brings its rate back",
        PERMITS_LUA,
        "if chosen_at and (tonumber(config[7] or nil) or 0) < chosen_at then return -4 end",
        "",
    ),
    mutant(
        "limiter, Lua",
        "what a clock of later granted expires with the next grant",
        PERMITS_LUA,
        "if newest then counts",
        "if not newest then counts",
    ),
    mutant(
        "limiter, Lua",
        "a longer interval counts what had expired for other clients",
        PERMITS_LUA,
        "expired_until = math.max(expired_until, expired_before)",
        "expired_until = math.min(expired_until, expired_before)",
    ),
    mutant(
        "limiter, Lua",
        "a rate that was forgotten forgets its grants",
        "lua/limiter/expire.lua",
        "call('SET', KEYS[10], grants,",
        "call('SET', KEYS[10], '',",
    ),
    mutant(
        "lock, Lua",
        "a repeated request counts twice",
        LOCK_ACQUIRE_LUA,
        "elseif is_reentrant and not was_granted then",
        "elseif is_reentrant then",
    ),
    mutant(
        "lock, Lua",
        "whoever has lost it releases it",
        LOCK_RELEASE_LUA,
        "  is_ours = held and token > 0 and (latest == token or latest == 0 and have_same_token)",
        "  is_ours = held",
    ),
    mutant(
        "lock, Lua",
        "whoever has lost it and the token releases it",
        LOCK_RELEASE_LUA,
        "latest == 0 and have_same_token)",
        "latest == 0)",
    ),
    mutant(
        "lock, Lua",
        "nobody is told how many others wait",
        LOCK_RELEASE_LUA,
        "2 + listeners or 1",
        "1 or 1",
    ),
    mutant(
        "lock",
        "a process does not leave it to others",
        TURN,
        "now < *until && !self.is_held",
        "now < *until && false",
    ),
    mutant(
        "lock",
        "a wake-up ends with the waiter that has it",
        WAITERS,
        "waiter.is_some_and(|waiter| waiter.is_woken())",
        "waiter.is_none()",
    ),
    mutant(
        "lock",
        "an owner waits behind others",
        WAITERS,
        "waiter.info.owner == Some(owner)",
        "waiter.info.owner == Some(owner + 1)",
    ),
    mutant(
        "lock",
        "nobody is told that it was taken away",
        HELD,
        "            Ok(Ok(false)) | Err(_) => {\n                self.set_state(LeaseState::Lost);\n",
        "            Ok(Ok(false)) | Err(_) => {\n",
    ),
    mutant(
        "joint, Lua",
        "what fits into one count is charged there",
        DECIDE_LUA,
        "verdict, alike, charged, takes = DENIED, alike + takes, 0, 0",
        "verdict, takes = ALLOWED, 0",
    ),
    mutant(
        "joint, Lua",
        "the last count that is looked at decides",
        DECIDE_LUA,
        "fitting = math.min(fitting, verdict == ALLOWED and alike or 0)",
        "fitting = verdict == ALLOWED and alike or 0",
    ),
    mutant(
        "joint",
        "one count with room is enough in memory",
        "src/store/memory/joint.rs",
        "looks.all(|(look, take)|",
        "looks.any(|(look, take)|",
    ),
    mutant(
        "joint",
        "a denial says when the first count has room",
        "src/store/joint_take.rs",
        "let retry_after = one.max(other);",
        "let retry_after = one.min(other);",
    ),
    mutant(
        "joint",
        "a take does not come behind those of its other counts",
        CALLS,
        "let last = known.iter().flatten().max().copied();",
        "let last = known[0];",
    ),
    mutant(
        "at a time",
        "one more may run",
        "lua/include/holders.lua",
        "(held >= permits or unfitting > 0)",
        "(held > permits or unfitting > 0)",
    ),
    mutant(
        "at a time",
        "a renewal in time is late",
        "lua/permits/renew.lua",
        "if now <= deadline then",
        "if now > deadline then",
    ),
    mutant(
        "at a time",
        "a permit is held by nobody",
        "lua/include/joint_permits.lua",
        "state.used = state.used + 1",
        "state.used = state.used",
    ),
    mutant(
        "at a time",
        "a quota is charged for a busy request in memory",
        "src/store/memory/joint.rs",
        "is_unlimited || states.all(",
        "take.rule().is_permits() || is_unlimited || states.all(",
    ),
    mutant(
        "at a time",
        "nobody hears of a permit that comes back",
        "src/metrics/open_charges.rs",
        "if count.waiters.listener.is_none() {",
        "if false {",
    ),
    mutant(
        "deadline",
        "a minute late is in time",
        ROW_LUA,
        "if now > deadline then",
        "if now > deadline + 60000000 then",
    ),
    mutant(
        "bounds",
        "half-open lets everybody through",
        BREAKER,
        "            Phase::HalfOpen { trial: None } => {\n                self.phase = Phase::HalfOpen { trial: Some(now) };",
        "            Phase::HalfOpen { trial: None } => {\n                self.phase = Phase::HalfOpen { trial: None };",
    ),
    mutant(
        "bounds",
        "one failure more opens",
        BREAKER,
        "if failures + 1 < most",
        "if failures < most",
    ),
    mutant(
        "bounds",
        "what was before counts",
        BREAKER,
        "            _ if ticket.generation != self.generation => return false,\n",
        "",
    ),
    mutant(
        "bounds",
        "a permit is never given back",
        PERMIT,
        "self.0.fetch_sub(1, Ordering::Relaxed);",
        "self.0.fetch_sub(0, Ordering::Relaxed);",
    ),
    mutant(
        "bounds",
        "a repeat needs a permit",
        GUARDED,
        "QuestionKind::Take => take.is_repeat() || take.rule().is_shadow(),",
        "QuestionKind::Take => take.rule().is_shadow(),",
    ),
    mutant(
        "outcome",
        "a refund by outcome needs a permit",
        GUARDED,
        "QuestionKind::Change => take.is_unawaited(),",
        "QuestionKind::Change => false,",
    ),
    mutant(
        "bounds",
        "a trial that is dropped keeps the others out",
        BREAKER_CORE,
        "if ticket.trial.is_some() {",
        "if ticket.trial.is_some() && ticket.generation == 0 {",
    ),
    mutant(
        "bounds",
        "a question is asked twice",
        GUARDED,
        "self.call(take, QuestionKind::Take, S::take, move |take, answer| {",
        "let ask = |inner: &S, take: &Take| (inner.take(take), inner.take(take)).1;\n        self.call(take, QuestionKind::Take, ask, move |take, answer| {",
    ),
    mutant(
        "bounds",
        "a wrapper's time-out does not reach the server",
        CONNECTION,
        "Deadline::after(self.timeout).or_earlier(sooner)",
        "Deadline::after(self.timeout).or_earlier(None)",
    ),
    mutant(
        "bounds",
        "a share in a longer window is rounded up",
        SHARE,
        "whole.div_ceil(rate)",
        "(whole / rate)",
    ),
    mutant(
        "bounds",
        "a fallback decides what is to be let through",
        FALLBACK,
        "matches!(take.rule().error_policy(), None | Some(OnError::Fallback))",
        "take.rule().error_policy() != Some(OnError::Respond)",
    ),
    mutant(
        "cache",
        "a denial lasts from when it was heard",
        DENIAL,
        "let age = now.saturating_sub(self.asked_at);",
        "let age = now.saturating_sub(self.heard_at);",
    ),
    mutant(
        "cache",
        "a retry-after is counted from when it was asked",
        DENIAL,
        "now.saturating_sub(self.heard_at) / 1_000",
        "now.saturating_sub(self.asked_at) / 1_000",
    ),
    mutant(
        "cache",
        "an old denial answers as long as it lasts",
        DENIAL,
        "at_servers_pace >= self.lasts || age >= max_age",
        "at_servers_pace >= self.lasts",
    ),
    mutant(
        "cache",
        "a denial answers takes of any cost",
        DENIAL,
        "self.hash == take.count_name().hash()\n            && self.cost == take.cost()\n            &&",
        "self.hash == take.count_name().hash()\n            &&",
    ),
    mutant(
        "cache",
        "a denial answers under another rule",
        DENIAL,
        "            && self.rule.as_ptr() == Arc::as_ptr(take.rule())\n",
        "",
    ),
    mutant(
        "cache",
        "everybody asks again at the max age",
        DENIAL,
        "Age::Due if denial.renewal.is_none() =>",
        "Age::Due =>",
    ),
    mutant(
        "cache",
        "a denial from before a refund is remembered",
        DENIAL,
        "self.changes == 0 && question.voids == self.voids",
        "self.changes == 0",
    ),
    mutant(
        "cache",
        "a denial is remembered while a refund is under way",
        DENIAL,
        "self.changes == 0 && question.voids == self.voids",
        "question.voids == self.voids",
    ),
    mutant(
        "cache",
        "an earlier denial replaces a later one",
        DENIAL,
        "if kept.asked_at < denial.asked_at {",
        "if kept.asked_at >= denial.asked_at {",
    ),
    mutant(
        "cache",
        "a flood of keys drops the keys that are asked for",
        DENIAL,
        "min_by_key(|kept| kept.last_use)",
        "max_by_key(|kept| kept.last_use)",
    ),
    mutant(
        "cache",
        "a dropped question leaves its denial",
        DENIAL,
        "fn drop(&mut self) {\n        self.end(None);",
        "fn drop(&mut self) {\n        self.question.renewal = None;",
    ),
    mutant(
        "leases",
        "units count no longer than their window",
        COUNT,
        "        lengthened(quotas, longer_by(mark, now, lease))",
        "        lengthened(quotas, longer_by(mark, now, lease) * 0)",
    ),
    mutant(
        "leases",
        "who has no lease counts no longer than its window",
        MARK,
        "mark.map_or(lease, |mark| mark.lease.max(lease))",
        "mark.map_or(lease, |_| lease)",
    ),
    mutant(
        "leases",
        "a shorter lease replaces a longer one",
        MARK,
        "let lease = longer_by(before, now, lease);",
        "let lease = longer_by(before.filter(|_| false), now, lease);",
    ),
    mutant(
        "leases",
        "a mark ends with the lease, not with its units",
        MARK,
        "life: before.map_or(life, |mark| mark.life.max(life)),",
        "life: lease,",
    ),
    mutant(
        "leases",
        "a charge without a lease takes the mark away",
        MARK,
        "return before.map(|mark| Self {",
        "return before.filter(|_| false).map(|mark| Self {",
    ),
    mutant(
        "leases",
        "a script: who has no lease counts no longer than its window",
        LONGER_LUA,
        "if is_marked and marked_lease > lease then longer_by = marked_lease end",
        "",
    ),
    mutant(
        "leases",
        "a script: a shorter lease replaces a longer one",
        MARK_LUA,
        "marked_lease, lease_stamp = longer_by, now",
        "marked_lease, lease_stamp = lease, now",
    ),
    mutant(
        "leases",
        "a script: a mark stays in the future",
        MARK_LUA,
        "lease_stamp = now\n      end",
        "lease_stamp = lease_stamp + 0\n      end",
    ),
    mutant(
        "leases",
        "leases last twice as long",
        KEY_LEASES,
        "self.length.saturating_sub(now.since(self.asked_at))",
        "(2 * self.length).saturating_sub(now.since(self.asked_at))",
    ),
    mutant(
        "leases",
        "leases of a fixed window outlast it",
        KEY_LEASES,
        "length = length.min(ends_after.saturating_mul(1_000));",
        "length = length.max(ends_after.saturating_mul(1_000));",
    ),
    mutant(
        "leases",
        "leases last a tenth longer",
        KEY_LEASES,
        "nanos(rule.lease()?);",
        "nanos(rule.lease()?) * 11 / 10;",
    ),
    mutant(
        "leases",
        "a lease ends by the clock that advanced less",
        MOMENT,
        "if wall > monotonic { wall } else { monotonic }",
        "if wall < monotonic { wall } else { monotonic }",
    ),
    mutant(
        "leases",
        "units are handed out twice",
        KEY_LEASES,
        "self.used += cost;",
        "self.used += cost / 2;",
    ),
    mutant(
        "leases",
        "what is given back has been used",
        KEY_LEASES,
        "self.receipt.serial(), self.left())",
        "self.receipt.serial(), self.receipt.units())",
    ),
    mutant(
        "leases",
        "a lease is held after a reset",
        KEY_LEASES,
        "held.filter(|_| self.generation == wanted.generation)",
        "held.filter(|_| self.generation >= wanted.generation)",
    ),
    mutant(
        "leases",
        "a lease of an earlier rule is used",
        KEY_LEASES,
        "held.is_of(rule) && held.time_left(now) > 0",
        "held.time_left(now) > 0",
    ),
    mutant(
        "leases",
        "what a fallback admits is held",
        KEY_LEASES,
        ".filter(|decision| decision.failure().is_none());",
        ".filter(|decision| decision.is_allowed());",
    ),
    mutant(
        "connection",
        "a call overtakes those that were asked before it",
        CALLS,
        "return self.calls.push(CountCall::own(question));",
        "return self.calls.insert(0, CountCall::own(question));",
    ),
    mutant(
        "connection",
        "a take overtakes a refund of its key",
        CALLS,
        "*at >= behind && !is_alone)?;\n            Some((open, self.calls[open].new_key(1)?))",
        "!is_alone)?;\n            Some((open, self.calls[open].new_key(1)?))",
    ),
    mutant(
        "connection",
        "a call has a key too many",
        TAKE_CALL,
        "const MAX_KEYS: usize = 64;",
        "const MAX_KEYS: usize = 65;",
    ),
    mutant(
        "connection",
        "a call has a take too many",
        TAKE_CALL,
        "const MAX_TAKES: usize = 512;",
        "const MAX_TAKES: usize = 513;",
    ),
    mutant(
        "connection",
        "no deadline is sent",
        TAKE_CALL,
        "None => clock.at(question.deadline.at.into_std()).min(NO_DEADLINE),",
        "None => NO_DEADLINE,",
    ),
    mutant(
        "connection",
        "another call's reply is taken",
        TAKE_SCRIPT,
        "if fields.integer::<8>()? != id {",
        "if fields.integer::<8>()? > id + (1 << 48) {",
    ),
    mutant(
        "connection",
        "a connection that gave another call's reply is kept",
        FLIGHT,
        "        self.link.close();\n        let message",
        "        let message",
    ),
    mutant(
        "connection",
        "any reply of its form is that of a script",
        "src/connection/call_id.rs",
        "id.cast_unsigned() == self.0",
        "id.cast_unsigned() == self.0 || id >= 0",
    ),
    mutant(
        "connection",
        "a command without a script needs no check behind it",
        FLIGHT,
        "let needs_check = !self.calls.iter().all(C::is_numbered);",
        "let needs_check = !self.calls.iter().all(|call| C::is_numbered(call) || true);",
    ),
    mutant(
        "connection",
        "a script is called after its deadline",
        "src/connection/call_id.rs",
        "if server_now > deadline then",
        "if server_now > deadline and id < 0 then",
    ),
    mutant(
        "connection",
        "a take that was late by a clock that was set is not asked again",
        "src/connection/node.rs",
        "const MAX_LATE_RESENDS: u8 = 3;",
        "const MAX_LATE_RESENDS: u8 = 0;",
    ),
    mutant(
        "connection",
        "a clock that was set back is not believed",
        CLOCK,
        "min > known || max < known",
        "min > known",
    ),
    mutant(
        "connection",
        "a forbidden key is an error for all keys of its call",
        FLIGHT,
        "options.is_alone |= is_shared && is_about_a_key(&error);",
        "options.is_alone |= !is_shared && is_about_a_key(&error);",
    ),
    mutant(
        "connection",
        "what was sent on a connection that broke is sent again",
        FLIGHT,
        "fail(self.calls.into_iter().flat_map(C::into_questions), &error);",
        "for mut question in self.calls.into_iter().flat_map(C::into_questions) { question.resends += 1; match question.resends { 0..9 => self.carrier.endpoint.queue.push(question), _ => question.fail(error.clone()) } }",
    ),
    mutant(
        "connection",
        "the script's text is not sent behind ASKING",
        FLIGHT,
        "options.has_text |= is_unknown_script(&error);",
        "options.has_text |= is_unknown_script(&error) && !options.is_asking;",
    ),
    mutant(
        "connection",
        "a question is sent on without ASKING",
        REDIRECT,
        "question.options.is_asking = true;",
        "question.options.is_asking = false;",
    ),
    mutant(
        "connection",
        "one contradiction of two nodes is the end",
        REDIRECT,
        "const MAX_REDIRECTS: u8 = 16;",
        "const MAX_REDIRECTS: u8 = 1;",
    ),
    mutant(
        "connection",
        "dropped questions are sent",
        QUEUE,
        "if question.is_wanted() && question.has_time(now, &self.label.lag) {",
        "if question.has_time(now, &self.label.lag) {",
    ),
    mutant(
        "connection",
        "the queue is longer",
        QUEUE,
        "const MAX_QUEUED: usize = 16_384;",
        "const MAX_QUEUED: usize = 32_768;",
    ),
    mutant(
        "connection",
        "an overdue question waits for the flights in progress",
        NODE,
        "const MAX_EXTRA_FLIGHTS: usize = 64;",
        "const MAX_EXTRA_FLIGHTS: usize = MAX_FLIGHTS;",
    ),
    mutant(
        "connection",
        "silence is tolerated for as long as one timeout",
        RECONNECTOR,
        "shortest.saturating_mul(2)",
        "shortest.saturating_mul(1)",
    ),
    mutant(
        "connection",
        "silence is tolerated for two seconds",
        RECONNECTOR,
        "const MAX_SILENCE: Duration = Duration::from_secs(1);",
        "const MAX_SILENCE: Duration = Duration::from_secs(2);",
    ),
    mutant(
        "grpc",
        "a denial says that the server is unavailable",
        "src/callback/problem_document.rs",
        "grpc::trailers_only(content_type, Code::RESOURCE_EXHAUSTED, &message)",
        "grpc::trailers_only(content_type, Code::UNAVAILABLE, &message)",
    ),
    mutant(
        "direct",
        "a caller that leaves takes its place on the wire with it",
        "src/connection/direct.rs",
        "&& !flight.is_over()",
        "&& flight.is_over()",
    ),
    mutant(
        "direct",
        "a reply that a caller does not read looks like silence",
        "src/connection/reconnector.rs",
        "queue.adopt_unfinished();\n                tolerated - silent",
        "tolerated - silent",
    ),
    mutant(
        "direct",
        "a lone take overtakes a flight that was made and not sent",
        "src/connection/node.rs",
        "let permit = link.inner.flights.try_acquire(1)?;",
        "let permit = link.inner.flights.try_acquire(9)?;",
    ),
    mutant(
        "direct",
        "a flight overtakes a lone take that its caller has taken out and not sent",
        "src/connection/node.rs",
        "let departing = self.endpoint.queue.departing();",
        "let departing = ();",
    ),
    mutant(
        "direct",
        "a lone take of a task without budget is overtaken",
        "src/connection/direct.rs",
        "unconstrained(flight).poll_unpin(cx)",
        "flight.poll_unpin(cx)",
    ),
    mutant(
        "several",
        "a request pays for a time-out in each layer",
        "src/layer/outage.rs",
        "known.find(|outage| outage.until > now && outage.store == store)",
        "known.find(|outage| outage.until > now && outage.store != store)",
    ),
    mutant(
        "several",
        "a store that failed once is never asked again in the same request",
        "src/layer/outage.rs",
        "known.find(|outage| outage.until > now && outage.store == store)",
        "known.find(|outage| outage.until != now && outage.store == store)",
    ),
    mutant(
        "several",
        "an error callback switches the fallback off",
        "src/layer/responder.rs",
        "self.decision().is_some_and(is_fallback) && callback.also_with_fallback()",
        "self.decision().is_some_and(is_fallback) && callback.also_with_fallback() | true",
    ),
    mutant(
        "several",
        "a look is among the charges",
        "src/store/answers.rs",
        "answers.filter_map(Charge::of_units).collect()",
        "answers.cloned().collect()",
    ),
    mutant(
        "several",
        "the name of the service is not in front of a changed count",
        "src/store/redis/question.rs",
        "self.name.text(&self.prefix.service, &self.prefix.default)",
        "self.name.text(\"\", &self.prefix.default)",
    ),
    mutant(
        "several",
        "the fields show the innermost layer's limit",
        "src/layer/headers.rs",
        "(left, Reverse(reset)) < (inner_left, Reverse(inner_reset))",
        "(left, Reverse(reset)) < (inner_left.min(0), Reverse(inner_reset))",
    ),
    mutant(
        "grpc",
        "the content type is not mirrored",
        "src/callback/grpc.rs",
        "headers.insert(CONTENT_TYPE, content_type.clone());",
        "headers.insert(CONTENT_TYPE, HeaderValue::from_static(\"application/grpc\"));",
    ),
    mutant(
        "connection",
        "a connection that answers late is given up",
        RECONNECTOR,
        "() = link.inner.activity.not_silent(&self.shortest_timeout) => {",
        "() = link.inner.activity.not_silent(&self.shortest_timeout), if false => {",
    ),
    mutant(
        "connection",
        "no attempt goes on beside another",
        "src/connection/reconnector.rs",
        "self.in_progress.truncate(1);",
        "self.in_progress.truncate(0);",
    ),
    mutant(
        "connection",
        "stuck attempts keep later ones waiting",
        "src/connection/reconnector.rs",
        "() = sleep_until(next_at) => {",
        "() = sleep_until(next_at), if self.in_progress.len() < 2 => {",
    ),
    mutant(
        "connection",
        "a connection is as good as another one that opens and calls no script",
        RECONNECTOR,
        "if proof == Proof::ScriptCall {",
        "if proof == Proof::ScriptCall && false {",
    ),
    mutant(
        "owed",
        "what is owed is forgotten when a full bucket has drained",
        TALLIES,
        "kept.needed_until = kept.needed_until.max(kept.counter.ends_at());",
        "",
    ),
    mutant(
        "owed",
        "a bucket loses what is owed",
        GCRA_LUA,
        "local room = counter.owes and units or counter.capacity - before",
        "local room = counter.capacity - before",
    ),
    mutant(
        "owed",
        "a key owes without a bound",
        DECIDE_LUA,
        "charged = math.max(math.min(charged, most[n] - used[n]), 0)",
        "charged = charged",
    ),
    mutant(
        "holds",
        "a key that is held is charged",
        DECIDE_LUA,
        "if held and verdict == ALLOWED then verdict = ON_HOLD end",
        "",
    ),
    mutant(
        "holds",
        "a hold is shortened",
        "lua/hold.lua",
        "if not (held > ARGV[1] + 0 and held < TEN_YEARS) then",
        "if not (held > ARGV[1] + 0 and held < 0) then",
    ),
    mutant(
        "holds",
        "a date is compared with the clock of the machine",
        "src/limits/partner.rs",
        "let pause = date(RETRY_AFTER)?.duration_since(date(DATE)?);",
        "let pause = date(RETRY_AFTER)?.duration_since(std::time::SystemTime::now());",
    ),
];

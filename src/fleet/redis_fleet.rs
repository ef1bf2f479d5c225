//! What the processes of a service share through Redis: `lua/fleet/`.

use std::iter::repeat;
use std::time::Duration;

use redis::{Value, cmd, from_redis_value};

use crate::error::StoreError;
use crate::rule::Factor;
use crate::store::redis::{REPORT, RedisStore, SET_KEY};
use crate::store::{
    Fleet, FleetState, OperatorKey, OperatorKind, PeerReport, ProcessReport, StoreFuture,
};

/// How long such a question may take. No request waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The reply to a report: the secret, the version, the number of processes that have decided, and
/// the keys of each kind with their milliseconds.
type StateReply = ([u8; 16], u64, u64, Option<[Vec<(Vec<u8>, u64)>; 3]>);

/// What the lists of operators' keys are called, with the kind of those in them: in that of raises,
/// each has a factor of its own.
const LISTS: [(&str, Option<OperatorKind>); 3] = [
    ("let-through", Some(OperatorKind::LetThrough)),
    ("blocked", Some(OperatorKind::Blocked)),
    ("raised", None),
];

const fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl RedisStore {
    fn process_key(&self, process: &str) -> String {
        self.fleet_key(&format!("process:{process}"))
    }

    async fn read_reports(self) -> Result<Vec<PeerReport>, StoreError> {
        let connection = self.connection_within(TIMEOUT);
        let index = self.fleet_key("processes");
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(&index).arg("-inf").arg("+inf").arg("WITHSCORES");
        range.arg("LIMIT").arg(0).arg(PeerReport::MAX + 1);
        let processes: Vec<(String, f64)> = connection.query(range, &index).await?;
        let Some(newest) = processes.iter().map(|(_, at)| *at).reduce(f64::max) else {
            return Ok(Vec::new());
        };
        let mut get = cmd("MGET");
        for (process, _) in &processes {
            get.arg(self.process_key(process));
        }
        let texts: Vec<Option<Vec<u8>>> = connection.query(get, &index).await?;
        let said = processes.into_iter().zip(texts);
        let said = said.filter_map(|((process, at), text)| {
            Some(PeerReport {
                process: process.into(),
                text: String::from_utf8(text?).ok()?.into(),
                ago: Duration::from_millis((newest - at) as u64),
            })
        });
        Ok(said.collect())
    }
}

impl Fleet for RedisStore {
    fn report(&self, report: &ProcessReport) -> StoreFuture<FleetState> {
        let keys = [
            self.process_key(&report.process),
            self.fleet_key("processes"),
            self.fleet_key("secret"),
            self.fleet_key(LISTS[0].0),
            self.fleet_key(LISTS[1].0),
            self.fleet_key(LISTS[2].0),
            self.fleet_key("version"),
            self.fleet_key("deciding"),
        ];
        let connection = self.connection_within(TIMEOUT);
        let keys = keys.each_ref().map(String::as_str);
        let reply = connection.call(&REPORT, &keys, |command| {
            command.arg(&*report.process).arg(&*report.text);
            command.arg(report.known_version).arg(&report.random);
            command.arg(millis(OperatorKey::MAX_TIME));
            command.arg(millis(OperatorKey::MAX_RAISE_TIME));
            command.arg(OperatorKey::MAX).arg(u8::from(report.decides));
        });
        StoreFuture::boxed(async move {
            let state = from_redis_value::<StateReply>(reply.await?);
            // The error does not show the secret, so it shows nothing of the reply.
            let (secret, version, deciding, lists) =
                state.map_err(|_| connection.protocol_error(&Value::Nil))?;
            let key = |(kind, (name, millis))| {
                let name = String::from_utf8(name).ok()?;
                OperatorKey::parse(kind, &name, Duration::from_millis(millis))
            };
            let keys = lists.map(|lists| {
                let lists = LISTS.iter().zip(lists);
                let keys = lists.flat_map(|((_, kind), list)| repeat(*kind).zip(list));
                keys.filter_map(key).collect()
            });
            Ok(FleetState {
                secret,
                version,
                deciding,
                keys,
            })
        })
    }

    fn reports(&self) -> StoreFuture<Vec<PeerReport>> {
        StoreFuture::boxed(self.clone().read_reports())
    }

    fn set_key(&self, key: &OperatorKey) -> StoreFuture<Option<OperatorKey>> {
        let connection = self.connection_within(TIMEOUT);
        let (own, other) = match key.kind {
            OperatorKind::LetThrough => (0, 1),
            OperatorKind::Blocked => (1, 0),
            OperatorKind::Raised(_) => (2, 2),
        };
        let names = [LISTS[own].0, LISTS[other].0, LISTS[2].0, "version"];
        let names = names.map(|it| self.fleet_key(it));
        let names = names.each_ref().map(String::as_str);
        let reply = connection.call(&SET_KEY, &names, |command| {
            let longest = key.kind.max_time();
            command.arg(key.named()).arg(key.rest());
            command.arg(millis(key.time.min(longest)));
            command.arg(millis(longest)).arg(OperatorKey::MAX);
            command.arg(millis(OperatorKey::MAX_RAISE_TIME));
            command.arg(u8::from(key.replaces));
        });
        let kind = Some(key.kind).filter(|it| !it.is_raise());
        StoreFuture::boxed(async move {
            let reply = reply.await?;
            let stands = from_redis_value::<Option<(String, u64)>>(reply.clone());
            let stands = stands.map_err(|_| connection.protocol_error(&reply))?;
            Ok(stands.and_then(|(name, millis)| {
                OperatorKey::parse(kind, &name, Duration::from_millis(millis))
            }))
        })
    }

    fn claim(&self, name: &str, by: &str, time: Duration) -> StoreFuture<bool> {
        let (connection, key) = (self.connection_within(TIMEOUT), self.fleet_key(name));
        let (mut set, mut get) = (cmd("SET"), cmd("GET"));
        set.arg((&key, by, "NX", "PX", millis(time).max(1)));
        get.arg(&key);
        let by = by.to_owned();
        StoreFuture::boxed(async move {
            let is_set: Option<String> = connection.query(set, &key).await?;
            let owner = || connection.query::<Option<String>>(get, &key);
            Ok(is_set.is_some() || owner().await? == Some(by))
        })
    }
}

impl OperatorKey {
    /// What its name in a store begins with: key and path. A key has no blanks.
    fn named(&self) -> String {
        format!("{} {} {}", self.key, self.path.len(), self.path)
    }

    /// What stands behind its name: of a raise the factor, who does it, and in lines of their own
    /// why, and each name of a quota.
    fn rest(&self) -> String {
        let by = self.by.as_deref().unwrap_or_default();
        let has_lines = self.note.is_some() || !self.only.is_empty();
        let lines = has_lines.then(|| self.note.as_deref().unwrap_or_default());
        let lines = lines.into_iter().chain(self.only.iter().map(|it| &**it));
        let note: String = lines.map(|line| format!("\n{line}")).collect();
        match self.kind {
            OperatorKind::Raised(factor) => format!("{factor} {by}{note}"),
            OperatorKind::LetThrough | OperatorKind::Blocked => format!("{by}{note}"),
        }
    }

    /// Reads a name and what stands behind it; without a kind, a raise.
    fn parse(kind: Option<OperatorKind>, name: &str, time: Duration) -> Option<Self> {
        let (key, rest) = name.split_once(' ')?;
        let (length, rest) = rest.split_once(' ')?;
        let (path, rest) = rest.split_at_checked(length.parse().ok()?)?;
        let (kind, by) = match kind {
            Some(kind) => (kind, rest),
            None => {
                let (factor, by) = rest.split_once(' ')?;
                let factor = Factor::new(factor.parse().ok()?)?;
                (OperatorKind::Raised(factor), by)
            }
        };
        let mut lines = by.split('\n');
        let [by, note] = [lines.next(), lines.next()].map(Option::unwrap_or_default);
        let said = |text: &str| (!text.is_empty()).then(|| crate::unseen::blanked(text).into());
        Some(Self {
            kind,
            path: path.into(),
            key: key.into(),
            by: said(by),
            note: said(note),
            only: lines.map(Box::from).collect(),
            replaces: false,
            time,
        })
    }
}

//! Mistakes in the set-up that keep no request from being answered.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::trace::EVICTS;

/// A mistake in the set-up, with its remedy: what [`Limits::warnings`](crate::Limits::warnings)
/// lists, and what is logged once.
///
/// It names a path, a setting or a header field, and never a value of a request, a key, a password
/// or a URL. Its text is the sentence that the log shows.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limits;
/// use tidegate::warning::WarningKind;
///
/// let limits = Limits::from_toml("[rules.login]\nmax-count = 5\nwindow = \"1m\"")?;
/// let _ = limits.layer("signin");
/// let warnings = limits.warnings();
/// assert_eq!(warnings[0].kind, WarningKind::NoRule);
/// assert_eq!(warnings[0].path.as_deref(), Some("signin"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Warning {
    /// What is wrong.
    pub kind: WarningKind,
    /// The path that it is about; `None` if it is about the store.
    pub path: Option<Arc<str>>,
    /// Whether the second text of its kind says it.
    pub(crate) is_second: bool,
    /// The header field, the setting or the plan that it is about.
    pub name: Option<Cow<'static, str>>,
}

pub(crate) const WIDE_TRUST: &str = "trusts a network wider than /8 (IPv6: /7), so clients choose \
     their address; expected your proxies' alone, or hops if the ingress writes the field anew";

/// Declares each kind of [`Warning`] with its text, in which stand the path and the name, and the
/// remedy. A kind may have a [second](Warning::second) text.
macro_rules! kinds {
    (
        |$path:ident, $name:ident|
        $($(#[$doc:meta])+ $kind:ident = $text:literal $(or $second:literal)?;)+
    ) => {
        /// The kinds of [`Warning`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum WarningKind {
            $($(#[$doc])+ $kind,)+
        }

        impl fmt::Display for Warning {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $path = self.path.as_deref().unwrap_or_default();
                let $name = self.name.as_deref().unwrap_or_default();
                match self.kind {
                    $(
                        $(WarningKind::$kind if self.is_second => write!(f, $second),)?
                        WarningKind::$kind => write!(f, $text),
                    )+
                }
            }
        }
    };
}

kinds! {
    |path, name|
    /// A layer or a check has a path without a rule, so it limits nothing.
    NoRule = "there is no rule for {path:?}, so its layer or check limits nothing: add a rule, or \
        correct that path";
    /// A request came to a layer of [`Limits`](crate::Limits), and neither the layer, nor its rule
    /// or each subject of it, nor these limits have a key: all clients are counted together. Where
    /// that is meant, the key [`Everyone`](crate::key::Everyone) (`key = "everyone"` in a file)
    /// says so; under a [lock-out](crate::Rule::with_lockout) it never is, and the warning names
    /// it.
    NoKey = "nothing says whom the rule {path:?} counts, so its layer counts all clients together: \
        give a key to the layer, the rule or Limits, or say Everyone (in a file \"everyone\")"
        or "{path:?} locks out, but its key is everyone, so failures hold nobody, or all clients \
        without a key of their own: count by who is guessed, such as BasicUser (in a file \
        \"basic-user\")";
    /// A request cost more than a quota of its rule, of its plan or from code ever admits, so it
    /// was denied for good. A quota of 0 units is no mistake.
    CostAboveQuota = "a request for {path:?} costs more than its quota {name:?} ever admits, so it \
        is denied for good: make the quota or its burst larger, or the cost smaller; a quota that \
        counts requests beside units needs the cost 1: .with_cost(1), in a file cost = 1";
    /// A rule [locks out](crate::Rule::with_lockout) by a key that contains the credential itself,
    /// such as a bearer token or the field `Authorization`, or what the client makes up, such as a
    /// cookie, a field named like a session, a device or a token, a host, a method, or a field in
    /// front of another [alternative](crate::KeyExtractor::or): each guess may be a key of its own,
    /// so that none fails often enough. Or it has [successes](crate::rule::Lockout::reset_on), and
    /// its key is an address, alone, beside a field or as an alternative: a success of one's own
    /// ends the failures of all guesses from there.
    LockoutOfGuesses = "{path:?} locks out by {name}, and each guess may have another, so none is \
        ever locked out: count by who is guessed, such as BasicUser (in a file \"basic-user\"), by \
        an Extension that a layer outside has verified, or by the client's address alone"
        or "{path:?} locks out by an address, and a success from there ends the failures, so who \
        has an account guesses without a bound: count by who is guessed, such as BasicUser (in a \
        file \"basic-user\"), alone or paired with the address, or take reset-on out";
    /// A rule [locks out](crate::Rule::with_lockout), and it or the error callback lets requests
    /// through where the store gives no decision:
    /// [`OnError::Proceed`](crate::rule::OnError::Proceed), [`FailOpen`](crate::FailOpen), or
    /// [`Recovery::Proceed`](crate::Recovery::Proceed), which shows when it happens first.
    LockoutFailsOpen = "{path:?} locks out, but {name} lets requests through without a decision: \
        whoever fills the store, or waits for an outage, guesses without a bound; write on-error = \
        \"respond\" into the rule, and let no error callback proceed";
    /// The quotas of a rule that [locks out](crate::Rule::with_lockout) admit more than ten times
    /// as many requests of a key in ten seconds as may fail, and nothing bounds how many of them
    /// run [at a time](crate::Rule::with_max_concurrent). The number is named.
    LockoutOfBursts = "{path:?} locks out, but its quotas admit {name} requests of a key in 10 s, \
        and so many guesses at a time: add max-concurrent = 2 for a login form, for API keys as \
        many as their own clients run at a time, or a quota such as {{ max-count = 20, window = \
        \"1m\" }}";
    /// New rules have ended the holds of a rule that [locks out](crate::Rule::with_lockout), or is
    /// [outgoing](crate::Rule::with_outgoing): its algorithm, prefix or subject changed, and with
    /// it what a store names its counts. It is logged, and not listed.
    HoldsEnded = "the holds of {path:?} have ended, and its failures are forgotten: its algorithm \
        or subject changed; take that back, and what lasts of them counts again";
    /// Neither a layer nor a check has used a rule: shown from 10 s after the first request on.
    UnusedRule = "neither a layer nor a check has used the rule {path:?}: make a layer of this \
        path, declare its checks by Limits::declare_checks, or correct the path of the rule";
    /// The key is [`PeerIp`](crate::PeerIp), and a request came through a proxy.
    PeerIpBehindProxy = "the key of {path:?} is PeerIp, but a request has the field {name}, as \
        proxies write it: behind a proxy all clients share one limit; use ClientIp::behind with \
        its networks";
    /// A rule exempts networks, nothing says which proxies are trusted, and a request came through
    /// a proxy. Such a request is not exempt by its address.
    ExemptBehindProxy = "{path:?} exempts networks, but a request has the field {name}, as proxies \
        write it, and is not exempt: add a table [client-ip] that says which proxies are trusted, \
        or trusted = [] if clients connect directly";
    /// A request came through fewer proxies than
    /// [`ClientIp::behind_hops`](crate::ClientIp::behind_hops) says. Or where that finds the
    /// client, a request has an address of a private network, and before it one of the Internet:
    /// there is one proxy more, and all clients share its limit.
    WrongHops = "a request for {path:?} has fewer addresses in the field {name} than \
        ClientIp::behind_hops says: it did not come through all proxies, and is counted by the \
        address that sent it; correct the number, or close the way around the proxies"
        or "a request for {path:?} has a private address in the field {name} where \
        ClientIp::behind_hops finds the client, and a public one before it, which the client may \
        have made up: the proxy sees private addresses (NAT), or there is another proxy, whose \
        clients share one limit; only if a proxy of yours wrote the public address, make the \
        number larger by one";
    /// A hundred requests in a row came from a peer that
    /// [`ClientIp::behind`](crate::ClientIp::behind) trusts, and none had an address as the last
    /// element of the field, so all were counted by the address of that peer. At most 64 peers are
    /// watched.
    SilentProxy = "of 100 requests in a row for {path:?} from one trusted proxy none had an \
        address as the last element of the field {name} (its for= in Forwarded), so all its \
        clients share one limit: have the proxy write the client's, or exempt its health checks";
    /// [`ClientIp::behind`](crate::ClientIp::behind) trusts a network of IPv4 that is wider than
    /// /8, or of IPv6 that is wider than /7: clients in it choose the address by which they are
    /// limited. It is logged as an error.
    WideTrust = "{path:?} {WIDE_TRUST}";
    /// A `max` above 10,000 under the sliding log, whose entries are as many.
    LargeLog = "{path:?} has a max above 10,000 under the sliding log, which keeps up to so many \
        entries for each key: use the algorithm \"sliding-window\" or \"gcra\"";
    /// A rule in [shadow](crate::Rule::into_shadow) [settles](crate::Rule::with_settling): no
    /// settlement reaches it, so it counts what was reserved.
    SettlesInShadow = "{path:?} settles and is in shadow, which no settlement reaches, so its \
        denials count reservations: for a dry run of what is used take shadow out, and set a max \
        that denies nobody";
    /// Code has settled or refunded no charge of a rule that [settles](crate::Rule::with_settling)
    /// until a thousand had ended. Or none of a thousand requests had an
    /// [`Extension`](crate::key::Extension) of the key. The first one that comes ends it.
    NeverSeen = "{path:?} settles, but a thousand of its charges have ended, and code has settled \
        or refunded none, so each costs what was reserved: call charges.of({path:?}).settle(..), \
        or take settles out"
        or "of a thousand requests for {path:?} none had the extension {name} of its key, so what \
        counts without it counts all: put the layer that inserts it outside of the one that limits";
    /// A rule [gives charges back by their outcome](crate::Rule::with_refund_on), by responses
    /// alone, and [`Limits::check`](crate::Limits::check) or [`Limits::call`](crate::Limits::call),
    /// which see none, have charged it.
    OutcomeOfCheck = "{path:?} has {name}, but limits.check and limits.call see no response, so \
        nothing is given back: add \"error\" for functions that return an Err, or let the code \
        call refund on the charge that the check returns";
    /// A rule says between whom those that wait are [fair](crate::Rule::with_fair_by), and nobody
    /// takes turns: no layer of its path lets requests wait, as [`verify`](crate::Limits::verify)
    /// finds, or without layers no check or call had waited when the first was denied; or all that
    /// wait for a count have one value, since it is the rule's own key, that of all its subjects,
    /// or everyone.
    NoTurns = "{path:?} has fair-by, and so far nobody waits for a turn: say .wait(..) to its \
        layer, check, call or outgoing"
        or "{path:?} has a fair-by that is the key of what is counted, or everyone, so all that \
        wait for a count share one turn: name who shares it, such as \"header:x-tenant\"";
    /// A handler asks for the [`Charges::of`](crate::store::Charges::of) a path that neither a rule
    /// nor a layer has, so it finds none.
    NoCharges = "neither a rule nor a layer has the path {path:?}, so charges.of({path:?}) finds \
        no charge, and nothing is settled or given back: correct that path";
    /// [`Limits::plan`](crate::Limits::plan) or [`plan_value`](crate::Limits::plan_value) chooses a
    /// plan by a request, and a check, a call or a peek, which have none, said no plan.
    PlanOfCheck = "a check, call or peek of {path:?} says no plan, and what Limits::{name} finds \
        in requests does not reach it, so the rule's own quotas decide: add .{name}(..) to it, or \
        .plan_value(None) where these are meant";
    /// Code has dropped what [`Limits::check`](crate::Limits::check) gave it, with the
    /// [permit](crate::layer::Admitted::permit), before it did or awaited anything: nothing limits
    /// what it does then.
    PermitNotKept = "{path:?} limits how many run at a time, but the permit that limits.check gave \
        was dropped at once, so nothing is limited: write `let admitted = \
        limits.check(..).await?;` and keep it as long as the work takes";
    /// A layer with a [limit of requests at a time](crate::Rule::with_max_concurrent) is around a
    /// handler that upgrades the connection, as for a WebSocket: the response ends at once, and
    /// with it what the limit counts.
    PermitOfUpgrade = "{path:?} limits how many run at a time, but a response of its layer \
        upgrades the connection, as of a WebSocket, which ends the request, so nothing is limited: \
        take that layer out, write `let admitted = limits.check({path:?}, key).await?;` into the \
        handler, and keep it as long as the socket is open";
    /// [`Limits::outgoing`](crate::Limits::outgoing) has a rule that is not
    /// [outgoing](crate::Rule::with_outgoing): a partner's answers hold nothing.
    NotOutgoing = "limits.outgoing uses {path:?}, whose rule is not for outgoing calls, so what \
        the partner answers holds nothing: write `outgoing = true` into the rule";
    /// A rule [holds on](crate::Rule::with_hold_on) a 429 or a 503, which hold under each outgoing
    /// rule. The first one is named.
    IdleHold = "{path:?} has {name} in hold-on, where it changes nothing: a 429 and a 503 hold \
        a key anyway; take it out";
    /// A partner has refused a call of [`Limits::outgoing`](crate::Limits::outgoing), and says for
    /// how long in no field that is understood: its key is held for [a
    /// second](crate::Rule::with_hold_untold). The first field is named.
    RefusalNotUnderstood = "the partner of {path:?} refuses calls with a field {name} that says in \
        no known form for how long, so each holds its key for hold-untold, a second by default: \
        say there, or to limits.hold, what the partner means";
    /// A rule [gives charges back by their outcome](crate::Rule::with_refund_on), or [locks
    /// out](crate::Rule::with_lockout), and the status of a gRPC response is behind its head: in
    /// the trailers, which come too late for all but failures by a gRPC status, or as gRPC-Web has
    /// it, in the body. Nothing is given back, and no failure counts.
    GrpcStatusInTrailers = "{path:?} has {name}, but a gRPC response has its grpc-status in the \
        trailers, or in the body of gRPC-Web, which come too late: it gives nothing back, and is \
        no failure; let the handler call Charges::refund, or Charges::failed under a lockout, or \
        add such as \"grpc-16\" to its on, and put GrpcWebLayer outside";
    /// A request had a plan that its rule does not have. The first one is named.
    UnknownPlan = "a request has the plan \"{name}\", which the rule {path:?} does not have: the \
        rule's own quotas apply; add that plan to the rule, or give such requests no plan";
    /// A request had a [plan from code](crate::rule::Plan::of) that does not fit its rule: the
    /// first one is named by what is wrong with it. Or such a plan is among the extensions of a
    /// request, and no [`plan_value`](crate::Limits::plan_value) binds it to a path: it is unused.
    UnfitPlan = "code gives a plan to a request of {path:?} that does not fit the rule ({name}): \
        the rule's own quotas apply; correct what Plan::of is told, or the rule"
        or "a request of {path:?} has a plan by value among its extensions, which says nothing of \
        its path and is unused: if it is for this path, write .plan_value({path:?}, |head| \
        head.extensions.get::<Plan>().cloned()) on Limits, or without the path on its layer";
    /// A layer has a [key](crate::RateLimitLayer::key), or a [joint](crate::Rule::joint) rule has
    /// [one](crate::Rule::with_key), while each subject of the rule has its own.
    KeyOfJointRule = "code sets a key for {path:?}, but each subject of the rule has its own, so \
        that key counts nothing: take it out, or make it the key of a subject";
    /// The file has `headers` or `status` for a rule, and code says it, too, which wins:
    /// [`headers`](crate::RateLimitLayer::headers), or [`degrade`](crate::RateLimitLayer::degrade),
    /// whose answer has a status of its own. What is unused is named.
    HiddenByCode = "the file has {name} for {path:?}, which code says, too (.headers, .degrade), \
        so that the file's is unused: take one of them out";
    /// A readable part of a key looks like a token, which the store then keeps as it is: whoever
    /// reads its keys could use it. The page and the log show the first four characters of it.
    ReadableToken = "a key of {path:?} looks like a token, and the store keeps it as it is: make \
        it by Bearer, or Key::secret, so that it is stored as a hash";
    /// [`Limits::on_crossing`](crate::Limits::on_crossing) is never called: no rule and no plan has
    /// a [calendar](crate::rule::Policy::calendar) quota, and no
    /// [`plan_value`](crate::Limits::plan_value) may bring one. Or
    /// [`on_lockout`](crate::Limits::on_lockout) is not: no rule [locks
    /// out](crate::Rule::with_lockout). The setter is named.
    IdleCallback = "Limits::on_crossing is never called: it tells of quotas of the calendar, and \
        no rule or plan has one, nor has a layer a plan_value; write per = \"month\" in place of a \
        window, or Policy::calendar in code, or take on_crossing out"
        or "Limits::on_lockout is never called: no rule has a lock-out; write lockout into one, or \
        Rule::with_lockout in code, or take on_lockout out";
    /// A default of [`Limits`](crate::Limits) was set after a layer was made, which lacks it.
    SetTooLate = "Limits::{name} was called after a layer was made, which does not have it: set it \
        before the first layer";
    /// Two layers around one handler, as of a router and of one that is nested in it, have charged
    /// the same key of the same path for one request.
    ChargedTwice = "a request is charged twice by the rule {path:?}, and fails twice, by two \
        layers around one handler: take one of them out, or give it another path or key";
    /// The keys in Redis begin with the default prefix, as those of other services may.
    DefaultPrefix = "the keys in Redis have the default prefix, so other services with rules of \
        the same name count together with this one: use Resilient::redis(url, \
        \"name-of-the-service\") or RedisStore::prefix";
    /// For ten minutes more processes have decided than
    /// [`Resilient::processes`](crate::Resilient::processes) says, as far as they [take part in the
    /// fleet](crate::Limits::join_fleet): in an outage they admit more than the limits together.
    /// Their number is named.
    MoreProcesses = "{name} processes have decided for ten minutes, more than Resilient::processes \
        says: in an outage they admit more than the limits together; say the largest number that \
        runs";
    /// Redis has decided nothing in the ten seconds since it was asked first, and nothing until
    /// now.
    NoDecision = "Redis has decided nothing in the ten seconds since it was asked first: await \
        limits.ready(..) before the server listens, whose error says why";
    /// Redis evicts keys when its memory is full. Each connection looks when it begins, and logs
    /// it; another one begins where Redis says that its memory is full.
    RedisEvicts = "{EVICTS}";
    /// A memory store has had 80 % of the keys that it may have, or of those that may have failed
    /// under a [lock-out](crate::Rule::with_lockout).
    MemoryNearlyFull = "a memory store had 80 % of its keys: when all are taken and still count, a \
        new key gets an error, and of keys that failed some are forgotten; make \
        MemoryStore::with_max_keys larger than the number of clients in one window, or that fail \
        within the time of a lock-out";
}

impl Warning {
    pub(crate) const fn new(kind: WarningKind) -> Self {
        Self {
            kind,
            path: None,
            is_second: false,
            name: None,
        }
    }

    /// About this header field or setting.
    pub(crate) const fn named(kind: WarningKind, name: &'static str) -> Self {
        Self {
            kind,
            path: None,
            is_second: false,
            name: Some(Cow::Borrowed(name)),
        }
    }

    /// About this field, quota, plan or reason.
    pub(crate) fn with_name(kind: WarningKind, name: impl fmt::Display) -> Self {
        Self {
            name: Some(Cow::Owned(name.to_string())),
            ..Self::new(kind)
        }
    }

    /// Says it by the second text of its kind.
    pub(crate) const fn second(mut self) -> Self {
        self.is_second = true;
        self
    }

    /// Whether this says the same of the same path, whatever it names.
    pub(crate) fn repeats(&self, told: &Self) -> bool {
        let said = |it: &Self| (it.kind, it.is_second);
        said(self) == said(told) && self.path == told.path
    }

    /// About a plan whose name a client may have chosen.
    pub(crate) fn unknown_plan(name: &str) -> Self {
        const MAX_CHARS: usize = 64;
        let name: String = name.escape_default().take(MAX_CHARS).collect();
        Self::with_name(WarningKind::UnknownPlan, name)
    }

    /// About a key that each guess may have another of, by what it is made of.
    pub(crate) fn of_guesses(mark: &str) -> Self {
        Self::with_name(WarningKind::LockoutOfGuesses, mark.replacen('.', ":", 1))
    }

    pub(crate) fn log(&self) {
        #[cfg(feature = "tracing")]
        match self.kind {
            WarningKind::WideTrust => tracing::error!("{self}"),
            _ => tracing::warn!("{self}"),
        }
    }

    pub(crate) fn about(mut self, path: &str) -> Self {
        self.path = Some(path.into());
        self
    }
}

/// Paths of layers and rules that do not fit together: what
/// [`Limits::verify`](crate::Limits::verify) finds.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyError {
    /// Layers and checks without a rule: they limit nothing. In alphabetical order.
    pub paths_without_rule: Vec<String>,
    /// Rules without a layer or a [declared](crate::Limits::declare_checks) check: they limit
    /// nothing, either. In alphabetical order.
    pub paths_without_layer: Vec<String>,
    /// Paths that [`Limits::usage`](crate::Limits::usage) shows while a layer has a
    /// [key](crate::RateLimitLayer::key), a [plan](crate::RateLimitLayer::plan) or an
    /// [exemption](crate::RateLimitLayer::exempt) of its own, so that a customer is shown another
    /// count than the one that denies. In alphabetical order.
    pub paths_shown_otherwise: Vec<String>,
    /// Paths with a key that [trusts](crate::ClientIp::behind) a network with clients. In
    /// alphabetical order.
    pub paths_with_wide_trust: Vec<String>,
}

crate::error::debug_as_message!(VerifyError);

impl VerifyError {
    pub(crate) fn lists(&self) -> [(&'static str, &[String]); 4] {
        [
            ("layers or checks without a rule", &self.paths_without_rule),
            ("rules without a layer or check", &self.paths_without_layer),
            (
                "layers with a key, plan or exemption of their own, which Limits::usage does not \
                 know: call .key(..), .plan(..), .plan_value(path, ..) or .exempt(..) of Limits \
                 instead",
                &self.paths_shown_otherwise,
            ),
            (WIDE_TRUST, &self.paths_with_wide_trust),
        ]
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = self.lists().into_iter();
        let lists = lists.filter(|(_, paths)| !paths.is_empty());
        let lists = lists.map(|(what, paths)| format!("{what}: {paths:?}"));
        f.write_str(&lists.collect::<Vec<_>>().join("; "))?;
        match &self.paths_without_layer[..] {
            [] => Ok(()),
            paths => write!(
                f,
                " (before limits.check, limits.call or #[limited] has run: \
                 limits.declare_checks({paths:?}))"
            ),
        }
    }
}

impl std::error::Error for VerifyError {}

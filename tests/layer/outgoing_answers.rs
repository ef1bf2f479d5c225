//! What partners answer, as they document it, and for how long each answer holds its key.

use crate::*;

/// The answers' own time: 1,795,680,000 seconds since 1970.
const DATE: &str = "date: Thu, 26 Nov 2026 08:00:00 GMT\n";

/// `google.rpc.ErrorInfo` and a `RetryInfo` of 32.5 s.
const RETRY_INFO: &str = "CAgSDlF1b3RhIGV4Y2VlZGVkGlEKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5F\
    cnJvckluZm8SJQoTUkFURV9MSU1JVF9FWENFRURFRBIOZ29vZ2xlYXBpcy5jb20aNgoodHlwZS5nb29nbGVhcGlzLmNvbS\
    9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIIBCAyrXuAQ==";

struct Partner(Limits);

impl Partner {
    fn new(hold_on: &[&'static str]) -> Self {
        let rule = per_minute("partner", 10_000).with_outgoing();
        let rule = rule.expect("one subject");
        let rule = match hold_on {
            [] => rule,
            some => rule.with_hold_on(some.iter().copied()).expect("statuses"),
        };
        Self(Limits::new([rule]))
    }

    /// For how many milliseconds this answer holds the key of its call.
    async fn held(&self, status: u16, fields: &str) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for field in fields.lines().map(str::trim).filter(|it| !it.is_empty()) {
            let (name, value) = field.split_once(':').expect("a field");
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, value.trim().parse().expect("a value"));
        }
        let (key, partner) = (format!("{status} {fields}"), self.0.outgoing("partner"));
        let status = StatusCode::from_u16(status).expect("a status");
        let turn = partner.ready(&*key).await.expect("a turn");
        turn.observe_response(status, &headers);
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        let refused = partner.ready(&*key).await.err()?;
        Some(refused.retry_after().expect("it ends").as_millis())
    }
}

/// What their documentation shows, or says in words, by the name of who sends it.
#[tokio::test(start_paused = true)]
async fn as_partners_document_them() {
    let partner = Partner::new(&[]);
    for (name, status, fields, expected) in [
        (
            "a proxy that refuses beside a status of gRPC",
            503,
            "grpc-status: 0",
            Some(1_000),
        ),
        (
            "the same, with a time",
            429,
            "grpc-status: 14\nretry-after: 5",
            Some(5_000),
        ),
        (
            "Akamai: no time that is understood",
            429,
            "x-ratelimit-remaining: 0\n\
            x-ratelimit-next: 2026-11-26T08:00:30Z",
            Some(1_000),
        ),
        (
            "Anthropic",
            429,
            "retry-after: 12\nanthropic-ratelimit-requests-remaining: 0\n\
            anthropic-ratelimit-requests-reset: 2026-11-26T08:01:00Z",
            Some(12_000),
        ),
        (
            "Anthropic, tokens",
            429,
            "anthropic-ratelimit-requests-remaining: 40\n\
            anthropic-ratelimit-requests-reset: 2026-11-26T08:01:00Z\n\
            anthropic-ratelimit-input-tokens-remaining: 0\n\
            anthropic-ratelimit-input-tokens-reset: 2026-11-26T08:00:40Z",
            Some(40_000),
        ),
        (
            "Atlassian",
            429,
            "retry-after: 13\nx-ratelimit-limit: 100\nx-ratelimit-remaining: 0\n\
            x-ratelimit-reset: 2026-11-26T08:01Z\nratelimit-reason: jira-burst-based",
            Some(13_000),
        ),
        (
            "Atlassian, without seconds",
            429,
            "x-ratelimit-reset: 2026-11-26T08:01Z",
            Some(60_000),
        ),
        ("Atlassian, overloaded", 503, "retry-after: 5", Some(5_000)),
        (
            "Atlassian Data Center, admitted",
            200,
            "x-ratelimit-remaining: 9\n\
            x-ratelimit-interval-seconds: 1\nretry-after: 0",
            None,
        ),
        (
            "Auth0",
            429,
            "x-ratelimit-limit: 10\nx-ratelimit-remaining: 0\n\
            x-ratelimit-reset: 1795680007",
            Some(7_000),
        ),
        (
            "Azure Resource Manager",
            429,
            "retry-after: 17\n\
            x-ms-ratelimit-remaining-subscription-reads: 0",
            Some(17_000),
        ),
        (
            "Azure OpenAI",
            429,
            "retry-after-ms: 640\nx-ratelimit-remaining-tokens: 0",
            Some(640),
        ),
        (
            "Azure Cosmos DB",
            429,
            "x-ms-retry-after-ms: 50\nx-ms-substatus: 3200",
            Some(50),
        ),
        (
            "Azure Cosmos DB, admitted",
            200,
            "x-ms-retry-after-ms: 0",
            None,
        ),
        (
            "Cloudflare",
            429,
            "ratelimit: \"default\";r=0;t=30\n\
            ratelimit-policy: \"default\";q=1200;w=300\nretry-after: 31",
            Some(31_000),
        ),
        (
            "Cloudflare, admitted",
            200,
            "ratelimit: \"default\";r=50;t=30",
            None,
        ),
        (
            "Cloudflare, the last one",
            200,
            "ratelimit: \"default\";r=0;t=30",
            Some(30_000),
        ),
        ("Cloudflare 1005", 403, "retry-after: 120", Some(120_000)),
        (
            "Discord, a user",
            429,
            "retry-after: 65\nx-ratelimit-limit: 10\nx-ratelimit-remaining: 0\n\
            x-ratelimit-reset: 1470173023.123\nx-ratelimit-reset-after: 64.57\n\
            x-ratelimit-bucket: abcd1234\nx-ratelimit-scope: user",
            Some(65_000),
        ),
        (
            "Discord, a resource",
            429,
            "retry-after: 1337\nx-ratelimit-limit: 10\n\
            x-ratelimit-remaining: 9\nx-ratelimit-reset: 1470173023.123\n\
            x-ratelimit-reset-after: 64.57\nx-ratelimit-scope: shared",
            Some(1_337_000),
        ),
        (
            "Discord, all",
            429,
            "retry-after: 65\nx-ratelimit-global: true",
            Some(65_000),
        ),
        (
            "Discord, the last one",
            200,
            "x-ratelimit-limit: 5\nx-ratelimit-remaining: 0\n\
            x-ratelimit-reset: 1470173023\nx-ratelimit-reset-after: 1.25",
            Some(1_250),
        ),
        ("Docker Hub", 429, "retry-after: 1795680030", Some(30_000)),
        (
            "Docker Hub, pulls",
            200,
            "ratelimit-limit: 100;w=21600\nratelimit-remaining: 0;w=21600",
            None,
        ),
        (
            "GitHub, primary",
            403,
            "x-ratelimit-limit: 60\nx-ratelimit-remaining: 0\n\
            x-ratelimit-used: 60\nx-ratelimit-reset: 1795681800\nx-ratelimit-resource: core",
            Some(1_800_000),
        ),
        (
            "GitHub, primary",
            429,
            "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1795681800",
            Some(1_800_000),
        ),
        (
            "GitHub, secondary",
            403,
            "retry-after: 60\nx-ratelimit-remaining: 4978\n\
            x-ratelimit-reset: 1795681800",
            Some(60_000),
        ),
        (
            "GitHub, the last one",
            200,
            "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\n\
            x-ratelimit-reset: 1795681800",
            Some(1_800_000),
        ),
        (
            "GitHub, not yours",
            403,
            "x-ratelimit-remaining: 4978\nx-ratelimit-reset: 1795681800",
            None,
        ),
        (
            "GitLab",
            429,
            "ratelimit-limit: 60\nratelimit-observed: 67\nratelimit-remaining: 0\n\
            ratelimit-reset: 1795680047\nratelimit-resettime: Thu, 26 Nov 2026 08:00:47 GMT\n\
            ratelimit-name: throttle_authenticated_web",
            Some(47_000),
        ),
        (
            "GitLab, another limit",
            429,
            "ratelimit-limit: 600\nratelimit-observed: 5\n\
            ratelimit-remaining: 595\nratelimit-reset: 1795680060\n\
            ratelimit-resettime: Thu, 26 Nov 2026 08:01:00 GMT",
            Some(1_000),
        ),
        (
            "Google, gRPC",
            200,
            &format!("grpc-status: 8\ngrpc-status-details-bin: {RETRY_INFO}"),
            Some(32_500),
        ),
        (
            "Google Drive: its reason is in the body",
            403,
            "content-type: application/json",
            None,
        ),
        (
            "Gravitee",
            429,
            "x-rate-limit-remaining: 0\nx-rate-limit-reset: 1795680009500",
            Some(9_500),
        ),
        (
            "Groq",
            429,
            "x-ratelimit-remaining-requests: 14370\nx-ratelimit-reset-requests: 2m59.56s\n\
            x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 7.66s",
            Some(7_660),
        ),
        ("Microsoft Graph", 429, "retry-after: 10", Some(10_000)),
        (
            "OpenAI",
            429,
            "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\n\
            x-ratelimit-reset-requests: 1s\nx-ratelimit-remaining-tokens: 0\n\
            x-ratelimit-reset-tokens: 6m0s",
            Some(360_000),
        ),
        (
            "OpenAI, both",
            429,
            "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 12ms\n\
            x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 6m0s",
            Some(360_000),
        ),
        (
            "OpenAI, admitted",
            200,
            "x-ratelimit-remaining-requests: 59\n\
            x-ratelimit-reset-requests: 1s\nx-ratelimit-remaining-tokens: 0\n\
            x-ratelimit-reset-tokens: 6m0s",
            None,
        ),
        (
            "Okta",
            429,
            "x-rate-limit-limit: 1200\nx-rate-limit-remaining: 0\n\
            x-rate-limit-reset: 1795680060",
            Some(60_000),
        ),
        (
            "Perforce",
            429,
            "x-ratelimit-limit: 30\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 17",
            Some(17_000),
        ),
        (
            "Rachio",
            429,
            "x-ratelimit-limit: 1700\nx-ratelimit-remaining: 0\n\
            x-ratelimit-reset: 2026-11-26T08:30:00Z",
            Some(1_800_000),
        ),
        (
            "Reddit",
            200,
            "x-ratelimit-used: 600\nx-ratelimit-remaining: 0.0\nx-ratelimit-reset: 233",
            Some(233_000),
        ),
        ("SharePoint", 503, "retry-after: 120", Some(120_000)),
        (
            "SharePoint, nearly",
            200,
            "ratelimit-limit: 1200\nratelimit-remaining: 120\n\
            ratelimit-reset: 5",
            None,
        ),
        (
            "SharePoint, the last one",
            200,
            "ratelimit-limit: 1200\nratelimit-remaining: 0\n\
            ratelimit-reset: 5",
            Some(5_000),
        ),
        (
            "Shopify",
            429,
            "x-shopify-shop-api-call-limit: 40/40\nretry-after: 2.0",
            Some(2_000),
        ),
        ("Slack", 429, "retry-after: 30", Some(30_000)),
        (
            "Stripe: it says no time",
            429,
            "stripe-rate-limited-reason: endpoint-rate",
            Some(1_000),
        ),
        (
            "X",
            429,
            "x-rate-limit-limit: 450\nx-rate-limit-remaining: 0\n\
            x-rate-limit-reset: 1795680900",
            Some(900_000),
        ),
        (
            "Zendesk",
            429,
            "x-rate-limit: 700\nx-rate-limit-remaining: 0\nretry-after: 93",
            Some(93_000),
        ),
        (
            "Zendesk, the last one",
            200,
            "x-rate-limit: 700\nratelimit-limit: 700\n\
            ratelimit-remaining: 0\nratelimit-reset: 41",
            Some(41_000),
        ),
    ] {
        let held = partner.held(status, &format!("{DATE}{fields}")).await;
        assert_eq!(held, expected, "{name}: {status}\n{fields}");
    }
}

/// Forms of single partners, and of gateways. They are read of refusals alone.
#[tokio::test(start_paused = true)]
async fn forms_of_refusals() {
    let partner = Partner::new(&[]);
    for (name, fields, expected) in [
        (
            "OpenAI: milliseconds are more precise",
            "retry-after: 0\nretry-after-ms: 470",
            470,
        ),
        ("OpenAI", "retry-after: 1\nretry-after-ms: 170", 170),
        (
            "a gateway",
            "x-ratelimit-remaining: 0\nx-ratelimit-reset-ms: 4000",
            4_000,
        ),
        (
            "a gateway, an instant",
            "x-ratelimit-remaining: 0\nx-ratelimit-reset-ms: 1795680009500",
            9_500,
        ),
        ("AWS", "x-amz-retry-after: 3000", 3_000),
        ("Help Scout", "x-ratelimit-retry-after: 10", 10_000),
        (
            "Help Scout, without it",
            "x-ratelimit-limit-minute: 200\nx-ratelimit-remaining-minute: 0\n\
            x-ratelimit-interval-minute: 60",
            60_000,
        ),
        ("Smoobu", "x-ratelimit-retry-after: 1795680010", 10_000),
        (
            "Azure Cost Management",
            "x-ms-ratelimit-microsoft.costmanagement-qpu-retry-after: 25\n\
            x-ms-ratelimit-microsoft.costmanagement-entity-retry-after: 40\n\
            x-ms-ratelimit-microsoft.costmanagement-tenant-retry-after: 5",
            40_000,
        ),
        (
            "Bucket4j",
            "x-rate-limit-retry-after-seconds: 12\nx-rate-limit-remaining: 0",
            12_000,
        ),
        (
            "Bucket4j, milliseconds",
            "x-rate-limit-retry-after-milliseconds: 1250",
            1_250,
        ),
        (
            "HubSpot",
            "x-hubspot-ratelimit-max: 100\nx-hubspot-ratelimit-remaining: 0\n\
            x-hubspot-ratelimit-interval-milliseconds: 10000",
            10_000,
        ),
        (
            "HubSpot, the limit of a day",
            "x-hubspot-ratelimit-daily-remaining: 0\nx-hubspot-ratelimit-remaining: 90\n\
            x-hubspot-ratelimit-interval-milliseconds: 10000",
            1_000,
        ),
        (
            "HighLevel, the limit of a day",
            "x-ratelimit-remaining: 90\nx-ratelimit-interval-milliseconds: 10000\n\
            x-ratelimit-daily-remaining: 0\nx-ratelimit-daily-reset: 1800",
            1_800_000,
        ),
        (
            "Trello",
            "x-rate-limit-api-token-interval-ms: 10000\nx-rate-limit-api-token-max: 100\n\
            x-rate-limit-api-token-remaining: 0\nx-rate-limit-api-key-interval-ms: 30000\n\
            x-rate-limit-api-key-max: 300\nx-rate-limit-api-key-remaining: 200",
            10_000,
        ),
        (
            "Atlassian Data Center",
            "x-ratelimit-remaining: 0\nx-ratelimit-interval-seconds: 3",
            3_000,
        ),
        (
            "Atlassian, points",
            "beta-ratelimit: \"tenant-app-quota\";r=0;t=600\nx-ratelimit-limit: 400\n\
            x-ratelimit-remaining: 399\nx-beta-ratelimit-reset: 2026-11-26T08:10Z",
            600_000,
        ),
        (
            "Auth0, an application's tokens",
            "auth0-client-quota-limit: b=per_hour;q=100;r=0;t=1200,b=per_day;q=500;r=7;t=9000",
            1_200_000,
        ),
        ("two proxies", "retry-after: 5\nretry-after: 60", 60_000),
        ("two proxies", "retry-after: 60\nretry-after: 5", 60_000),
        (
            "two proxies, one understood",
            "retry-after: soon\nretry-after: 5",
            5_000,
        ),
        (
            "Okta, too many at a time",
            "x-rate-limit-limit: 0\nx-rate-limit-remaining: 0\nx-rate-limit-reset: 1795680060",
            1_000,
        ),
    ] {
        let fields = format!("{DATE}{fields}");
        let held = partner.held(429, &fields).await;
        assert_eq!(held, Some(expected), "{name}\n{fields}");
        let admitted = partner.held(200, &fields).await;
        assert_eq!(admitted, None, "{name}, admitted\n{fields}");
    }
}

/// A 400 may be a mistake of ours, also where the rule holds on it.
#[tokio::test(start_paused = true)]
async fn a_400_needs_a_field() {
    let linear = |left, at: &str| {
        format!(
            "{DATE}x-ratelimit-requests-limit: 5000\nx-ratelimit-requests-remaining: {left}\n\
             x-ratelimit-requests-reset: {at}"
        )
    };
    let reset = "1795680900000";
    for hold_on in [&["400"], &["4xx"]] {
        let partner = Partner::new(hold_on);
        for (fields, expected) in [
            (linear(0, reset), Some(900_000)),
            (linear(4_711, reset), None),
            (linear(0, "soon"), Some(1_000)),
            ("retry-after: 9".to_owned(), Some(9_000)),
            ("retry-after: soon".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(partner.held(400, &fields).await, expected, "{fields}");
        }
    }
    let other = Partner::new(&["529"]);
    assert_eq!(other.held(400, &linear(0, reset)).await, None);
}

/// All forms of a time, in each field that has one.
#[tokio::test(start_paused = true)]
async fn forms_of_a_time() {
    let partner = Partner::new(&[]);
    for (text, expected) in [
        ("9", Some(9_000)),
        ("0", None),
        ("0.25", Some(250)),
        ("00009", Some(9_000)),
        ("999999999", Some(3_600_000)),
        ("1795680009", Some(9_000)),
        ("1795680009.5", Some(9_500)),
        ("1795680009500", Some(9_500)),
        ("1795679999", None),
        ("1000000000", None),
        ("6m0s", Some(360_000)),
        ("1h", Some(3_600_000)),
        ("1m2.5s10ms", Some(62_510)),
        ("Thu, 26 Nov 2026 08:01:30 GMT", Some(90_000)),
        ("Thu, 26 Nov 2026 07:59:00 GMT", None),
        ("Thursday, 26-Nov-26 08:01:30 GMT", Some(90_000)),
        ("Thu Nov 26 08:01:30 2026", Some(90_000)),
        ("2026-11-26T08:01:30Z", Some(90_000)),
        ("2026-11-26t08:01:30.5z", Some(90_500)),
        ("2026-11-26 08:01Z", Some(60_000)),
        ("2026-11-26T10:31:30+02:30", Some(90_000)),
        ("2026-11-26T03:01:30-05:00", Some(90_000)),
        ("2026-11-25T23:59:59Z", None),
        ("-1", Some(1_000)),
        ("+9", Some(1_000)),
        ("1e9", Some(1_000)),
        ("0x9", Some(1_000)),
        ("inf", Some(1_000)),
        ("nan", Some(1_000)),
        ("9 s", Some(1_000)),
        ("9, 9", Some(9_000)),
        ("5, 60", Some(60_000)),
        ("60,5", Some(60_000)),
        ("soon, 5", Some(5_000)),
        ("Thu, 26 Nov 2026 08:01:30 UTC", Some(90_000)),
        ("Thu, 26 Nov 2026 10:31:30 +0230", Some(90_000)),
        ("Thu, 26 Nov 2026 03:01:30 -0500", Some(90_000)),
        ("Thursday, 26-Nov-26 08:01:30 UTC", Some(90_000)),
        ("Wed, 25 Nov 2026 23:59:59 UTC", None),
        ("Thu, 26 Nov 2026 08:01:30 CET", Some(1_000)),
        ("Thu, 26 Nov 2026 08:01:30 02300", Some(1_000)),
        ("Thu, 26 Nov 2026 08:01:30 +230", Some(1_000)),
        ("Thu, 26 Nov 2026 08:01:30", Some(1_000)),
        ("9w", Some(1_000)),
        ("", Some(1_000)),
        (".", Some(1_000)),
        ("tomorrow", Some(1_000)),
        ("2026-11-26", Some(1_000)),
        ("2026-11-26T10:31:30", Some(1_000)),
        ("2026-11-26T10:31:30+0230", Some(90_000)),
        ("2026-11-26T10:31:30+023", Some(1_000)),
        ("2026-11-26T10:31:30Z0", Some(1_000)),
        ("Tue Feb 16 2021 09:02:42 GMT+0100", Some(1_000)),
    ] {
        for field in [
            "retry-after",
            "x-ratelimit-reset-after",
            "x-ratelimit-reset",
        ] {
            let fields = format!("{DATE}{field}: {text}");
            assert_eq!(partner.held(429, &fields).await, expected, "{fields}");
        }
    }
    // Leap days, and a year without one.
    for (date, reset) in [
        ("Thu, 01 Jan 1970 00:00:00", "1970-01-01T00:00:09Z"),
        ("Mon, 28 Feb 2000 23:59:51", "2000-02-29T00:00:00Z"),
        ("Tue, 29 Feb 2000 23:59:51", "2000-03-01T00:00:00Z"),
        ("Sun, 28 Feb 2100 23:59:51", "2100-03-01T00:00:00Z"),
    ] {
        let fields = format!("date: {date} GMT\nx-ratelimit-reset: {reset}");
        assert_eq!(partner.held(429, &fields).await, Some(9_000), "{fields}");
    }
}

/// What a cache has kept holds for as much less, at each hit. What was left then says nothing.
#[tokio::test(start_paused = true)]
async fn answers_from_a_cache() {
    let used_up = "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1795680060";
    let drafts = "ratelimit: \"a\";r=0;t=60";
    let (seconds, far) = ("retry-after: 120", "age: 99999999999999999999");
    let date = "retry-after: Thu, 26 Nov 2026 08:02:00 GMT";
    let partner = Partner::new(&["529"]);
    for (status, age, fields, expected) in [
        (200, "age: 0", used_up, Some(60_000)),
        (200, "age: 00", drafts, Some(60_000)),
        (200, "age: 1", used_up, None),
        (200, "age: 300", used_up, None),
        (200, "age: 300", drafts, None),
        (404, "age: 300", drafts, None),
        (200, "age: soon", used_up, None),
        (200, "age: -1", drafts, None),
        (200, "age:", drafts, None),
        (200, far, drafts, None),
        (503, "age: 0", seconds, Some(120_000)),
        (503, "age: 100", seconds, Some(20_000)),
        (503, "age: 100", date, Some(20_000)),
        (503, "age: 120", seconds, Some(1_000)),
        (503, far, seconds, Some(1_000)),
        (503, "age: soon", seconds, Some(120_000)),
        (503, "age: 100, 10", seconds, Some(110_000)),
        (503, "age: 100\nage: 10", seconds, Some(110_000)),
        (503, "age: 100", "retry-after: 0", None),
        (503, "age: 100", "", Some(1_000)),
        (429, "age: 1", "retry-after-ms: 250", Some(250)),
        (429, "age: 10", used_up, Some(50_000)),
        (403, "age: 10", used_up, Some(50_000)),
        (529, "age: 10", drafts, Some(50_000)),
        (403, "age: 10", "", None),
    ] {
        let fields = format!("{DATE}{age}\n{fields}");
        let held = partner.held(status, &fields).await;
        assert_eq!(held, expected, "{status} {fields}");
    }
}

/// The `Date` of a server that has another zone in it.
#[tokio::test(start_paused = true)]
async fn a_date_with_an_offset() {
    let partner = Partner::new(&[]);
    for date in [
        "Thu, 26 Nov 2026 08:00:00 UTC",
        "Thu, 26 Nov 2026 08:00:00 +0000",
        "Thu, 26 Nov 2026 09:00:00 +0100",
        "Thu, 26 Nov 2026 02:30:00 -0530",
        "Fri, 27 Nov 2026 01:00:00 +17:00",
        "2026-11-26T10:00:00+02:00",
        "2026-11-26T10:00:00+0200",
    ] {
        for reset in ["1795680060", "Thu, 26 Nov 2026 08:01:00 GMT"] {
            let fields = format!("date: {date}\nratelimit-remaining: 0\nratelimit-reset: {reset}");
            assert_eq!(partner.held(200, &fields).await, Some(60_000), "{fields}");
        }
    }
}

/// Two numbers in a field, as of two quotas or two proxies, in one line or in two: the stricter.
#[tokio::test(start_paused = true)]
async fn several_numbers_in_a_field() {
    let partner = Partner::new(&[]);
    for (left, reset, expected) in [
        (&["0"][..], &["10", "60"][..], Some(60_000)),
        (&["0"], &["60", "10"], Some(60_000)),
        (&["5", "0"], &["60"], Some(60_000)),
        (&["0", "5"], &["60"], Some(60_000)),
        (&["5", "3"], &["60"], None),
        // Each of two numbers has its own time, such as Brave's, of a second and of a month.
        (&["0", "14999"], &["1", "1419704"], Some(1_000)),
        (&["1", "0"], &["1", "1419"], Some(1_419_000)),
        (&["0", "0"], &["1", "60"], Some(60_000)),
        (&["0;w=1", "5;w=60"], &["1", "60"], Some(1_000)),
        (&["1", "14999"], &["1", "1419704"], None),
    ] {
        for between in [", ", ",", "\n"] {
            for name in ["x-ratelimit", "ratelimit"] {
                let lines = |what: &str, numbers: &[&str]| {
                    let next = between.replace('\n', &format!("\n{name}-{what}: "));
                    format!("{name}-{what}: {}\n", numbers.join(&next))
                };
                let [left, reset] = [lines("remaining", left), lines("reset", reset)];
                let fields = format!("{DATE}{left}{reset}");
                assert_eq!(partner.held(200, &fields).await, expected, "{fields}");
            }
        }
    }
    let [one, two] = [1, 2].map(|it| format!("retry-after: Thu, 26 Nov 2026 08:0{it}:00 GMT"));
    let dates = format!("{DATE}{one}\n{two}");
    assert_eq!(partner.held(429, &dates).await, Some(120_000));
    for (left, expected) in [("5", 1_000), ("some", 60_000)] {
        let fields = format!("x-ratelimit-remaining: {left}\nx-ratelimit-reset: 60");
        assert_eq!(partner.held(429, &fields).await, Some(expected), "{fields}");
    }
}

/// No clock of this process decides.
#[tokio::test(start_paused = true)]
async fn instants_without_a_date() {
    let partner = Partner::new(&[]);
    for text in [
        "1795680009",
        "1795680009000",
        "99999999999999999999",
        "2026-11-26T08:01:30Z",
        "Thu, 26 Nov 2026 08:01:30 GMT",
    ] {
        for date in ["", "date: yesterday\n"] {
            let fields = format!("{date}retry-after: {text}");
            assert_eq!(partner.held(429, &fields).await, Some(1_000), "{fields}");
        }
    }
    // A far instant is cut.
    let far = format!("{DATE}retry-after: 99999999999999999999");
    assert_eq!(partner.held(429, &far).await, Some(3_600_000));
    let digits = format!("retry-after: {}", "9".repeat(60_000));
    assert_eq!(partner.held(429, &digits).await, Some(1_000));
}

/// The first field that is understood decides alone.
#[tokio::test(start_paused = true)]
async fn the_order_of_the_fields() {
    let partner = Partner::new(&[]);
    let fields = [
        "retry-after-ms: 1000",
        "x-ms-retry-after-ms: 2000",
        "retry-after: 3",
        "ratelimit: \"a\";r=0;t=4",
        "ratelimit-reset: 5",
        "x-ratelimit-reset-after: 6",
        "x-ratelimit-reset: 7",
        "x-ratelimit-reset-requests: 8s",
    ];
    for first in 0..fields.len() {
        let mut left = fields[first..].to_vec();
        left.reverse();
        let expected = (first as u128 + 1) * 1_000;
        assert_eq!(partner.held(429, &left.join("\n")).await, Some(expected));
        left.push("retry-after-ms: tomorrow");
        if first > 0 {
            assert_eq!(partner.held(429, &left.join("\n")).await, Some(expected));
        }
    }
    let longer = "retry-after: 0\nratelimit: \"a\";r=0;t=9";
    assert_eq!(partner.held(429, longer).await, None, "it decides alone");
    let grpc = format!("grpc-status: 8\nretry-after: 9\ngrpc-status-details-bin: {RETRY_INFO}");
    assert_eq!(partner.held(200, &grpc).await, Some(32_500));
    let pushback = format!("{grpc}\ngrpc-retry-pushback-ms: 250");
    assert_eq!(partner.held(200, &pushback).await, Some(250));
    // "Do not repeat this call" says nothing of when others are welcome.
    for never in ["-1", "-0.5", "never", ""] {
        let never = format!("{grpc}\ngrpc-retry-pushback-ms: {never}");
        assert_eq!(partner.held(200, &never).await, Some(32_500));
        let hold_on = Partner::new(&["grpc-8"]);
        assert_eq!(hold_on.held(200, &never).await, Some(32_500));
    }
}

/// RateLimit fields of all drafts.
#[tokio::test(start_paused = true)]
async fn drafts_of_ratelimit() {
    let partner = Partner::new(&[]);
    for (fields, expected) in [
        ("ratelimit: \"a\";r=0;t=7", Some(7_000)),
        ("ratelimit: \"a\";t=7;r=0", Some(7_000)),
        ("ratelimit: \"a\" ; r=0 ; t=7", Some(7_000)),
        ("ratelimit: a;r=0;t=7", Some(7_000)),
        ("ratelimit: \"a\";a=0;w=7", Some(7_000)),
        ("ratelimit: \"a\";a=1;w=7", None),
        ("ratelimit: \"a\";r=1;t=7, \"b\"; r=0; t=5", Some(5_000)),
        ("ratelimit: \"a\";r=0;t=7, \"b\";r=0;t=5", Some(7_000)),
        (
            "ratelimit: \"a\";r=0;t=7\nratelimit: \"b\";r=0;t=9",
            Some(9_000),
        ),
        ("ratelimit: \"a\"\nratelimit: \"b\";r=0;t=9", Some(9_000)),
        ("ratelimit: \"a\";r=0", None),
        ("ratelimit: \"a\";r=00;t=9", None),
        ("ratelimit: \"a\";r=0;t=x", None),
        ("ratelimit: \"a;r=5, \\\";t=1\";r=0;t=60", Some(60_000)),
        ("ratelimit: \"a\\\\\";r=0;t=60", Some(60_000)),
        ("ratelimit: \"a;r=0;t=60", None),
        ("ratelimit: \"a\\", None),
        ("ratelimit: limit=10, remaining=0, reset=8", Some(8_000)),
        ("ratelimit: limit=10,reset=8,remaining=0", Some(8_000)),
        ("ratelimit: limit=10, remaining=1, reset=8", None),
        ("ratelimit-remaining: 0\nratelimit-reset: 6", Some(6_000)),
        ("ratelimit-remaining: 1\nratelimit-reset: 6", None),
        ("ratelimit-reset: 6", None),
        ("ratelimit-remaining: 0", None),
    ] {
        assert_eq!(partner.held(200, fields).await, expected, "{fields}");
        assert_eq!(partner.held(404, fields).await, expected, "{fields}");
    }
}

/// Our own fields, of a layer over which requests are counted.
#[tokio::test(start_paused = true)]
async fn our_own_fields() {
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        let layer = RateLimitLayer::new("p", WINDOW, 2)
            .store(paused())
            .headers(headers);
        let app = app_at("/", layer);
        let partner = Partner::new(&[]);
        for (expected_status, expected) in [(OK, None), (OK, Some(60_000)), (DENIED, Some(60_000))]
        {
            let answer = ask(&app, "/", "").await;
            assert_eq!(answer.status, expected_status);
            let fields = answer.fields.iter();
            let fields =
                fields.map(|(name, it)| format!("{name}: {}\n", it.to_str().expect("text")));
            let held = partner
                .held(answer.status, &fields.collect::<String>())
                .await;
            assert_eq!(held, expected, "{headers:?} {expected_status}");
        }
    }
}

/// What holds without a field, and what needs one.
#[tokio::test(start_paused = true)]
async fn which_answers_hold() {
    let told = "retry-after: 9";
    let used_up = "x-ratelimit-remaining: 0\nx-ratelimit-reset: 7";
    let without_time = "x-ratelimit-remaining: 0";
    let grpc = |code| format!("grpc-status: {code}\n");
    let partner = Partner::new(&[]);
    for (status, expected) in [
        (429, [Some(1_000), Some(9_000), Some(7_000), Some(1_000)]),
        (503, [Some(1_000), Some(9_000), Some(7_000), Some(1_000)]),
        (403, [None, Some(9_000), Some(7_000), Some(1_000)]),
        (200, [None, None, Some(7_000), None]),
        (202, [None, None, Some(7_000), None]),
        (301, [None, None, Some(7_000), None]),
        (500, [None, None, Some(7_000), None]),
        (529, [None, None, Some(7_000), None]),
    ] {
        for (fields, expected) in ["", told, used_up, without_time].iter().zip(expected) {
            assert_eq!(
                partner.held(status, fields).await,
                expected,
                "{status} {fields}"
            );
        }
    }
    for (code, expected) in [
        ("8", [None, Some(9_000), Some(7_000), Some(1_000)]),
        ("14", [None, Some(9_000), Some(7_000), Some(1_000)]),
        ("0", [None, None, Some(7_000), None]),
        ("13", [None, None, Some(7_000), None]),
    ] {
        for (fields, expected) in ["", told, used_up, without_time].iter().zip(expected) {
            let fields = grpc(code) + fields;
            assert_eq!(partner.held(200, &fields).await, expected, "{fields}");
        }
    }
    // Not at all, says the server: that is no time.
    let never = grpc("8") + "grpc-retry-pushback-ms: -1";
    assert_eq!(partner.held(200, &never).await, None);
}

/// Statuses that the rule holds on are refusals, too: from a file and from code.
#[tokio::test(start_paused = true)]
async fn statuses_that_hold() {
    let text = "[rules.partner]\nmax-count = 99\nwindow = \"1m\"\noutgoing = true\n\
         hold-on = [\"403\", \"529\", \"4xx\", \"grpc-8\"]";
    let file = Partner(of_toml(text));
    for partner in [file, Partner::new(&["403", "529", "4xx", "grpc-8"])] {
        let rules = partner.0.rules().load();
        let hold_on = rules.get("partner").expect("a rule").hold_on();
        assert!(hold_on.eq(["4xx", "403", "529", "grpc-8"]));
        for status in [403, 404, 529, 429, 503] {
            assert_eq!(partner.held(status, "").await, Some(1_000), "{status}");
            let told = "retry-after: 9\nx-ratelimit-remaining: 5";
            assert_eq!(partner.held(status, told).await, Some(9_000), "{status}");
        }
        assert_eq!(partner.held(500, "retry-after: 9").await, None);
        assert_eq!(partner.held(200, "grpc-status: 8").await, Some(1_000));
        assert_eq!(partner.held(200, "grpc-status: 14").await, None);
    }
    let rule = || {
        per_minute("partner", 9)
            .with_outgoing()
            .expect("one subject")
    };
    for (wrong, message) in [
        (&["40x"][..], "\"40x\" is no status"),
        (&["denied"], "\"denied\" is no status"),
        (&["529", "error"], "\"error\" is no status"),
        (&[], "an empty list is no status"),
    ] {
        let error = rule().with_hold_on(wrong.iter().copied()).err();
        let error = error.expect("no status").to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

/// A refusal that is not understood is told once, by the name of its field.
#[tokio::test(start_paused = true)]
async fn what_is_not_understood_is_told_once() {
    let (log, partner) = (Log::start(), Partner::new(&["529"]));
    assert_eq!(partner.held(429, "").await, Some(1_000), "it says nothing");
    assert_eq!(partner.held(200, "ratelimit: \"a\";r=0;t=x").await, None);
    let understood = "retry-after: secret-value\nretry-after-ms: 900";
    assert_eq!(partner.held(429, understood).await, Some(900));
    let warned = || log.lines().into_iter().filter(|line| line.contains("WARN"));
    assert_eq!(warned().count(), 0);
    for seconds in ["secret-value", "another-value"] {
        let fields = format!("retry-after: {seconds}\nx-ratelimit-reset: {seconds}");
        assert_eq!(partner.held(529, &fields).await, Some(1_000));
    }
    let lines: Vec<_> = warned().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("\"partner\""), "{lines:?}");
    assert!(lines[0].contains("field retry-after that"), "{lines:?}");
    assert!(!lines[0].contains("value"), "{lines:?}");
    let warnings = partner.0.warnings();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].kind, WarningKind::RefusalNotUnderstood);
}

/// The warning names a field that the partner has sent, the one that says most.
#[tokio::test(start_paused = true)]
async fn the_warning_names_a_field_that_was_sent() {
    for (status, fields, expected) in [
        (429, "", None),
        (429, "server: x\ndate-of-birth: today", None),
        (
            429,
            "x-ratelimit-remaining: 0\nx-ratelimit-reset: 2026-11-28 13:00:00 UTC",
            Some("x-ratelimit-reset"),
        ),
        (
            429,
            "x-ratelimit-remaining: 0\nx-ratelimit-next: 2026-11-26T08:00:30Z",
            Some("x-ratelimit-next"),
        ),
        (
            429,
            "ratelimit-limit: 100;w=21600\nratelimit-remaining: 0;w=21600",
            Some("ratelimit-remaining"),
        ),
        (
            403,
            "x-ratelimit-remaining: 0",
            Some("x-ratelimit-remaining"),
        ),
        (
            429,
            "x-rate-limit: 9\nstripe-rate-limited-reason: endpoint-rate",
            Some("stripe-rate-limited-reason"),
        ),
        (503, "x-should-retry: true", Some("x-should-retry")),
        (529, "x-tenant-quota: used up", Some("x-tenant-quota")),
        (
            529,
            "x-upstream-retry-after: soon\nquota-left: no",
            Some("x-upstream-retry-after"),
        ),
        (429, "retry-after: later\nx-quota: y", Some("retry-after")),
        (
            429,
            "beta-ratelimit: \"a\";r=0;t=soon",
            Some("beta-ratelimit"),
        ),
        (
            429,
            "x-rate-limit-api-key-interval-ms: ten\nx-rate-limit-api-key-remaining: 0",
            Some("x-rate-limit-api-key-interval-ms"),
        ),
        // They say what they say, and none of them when.
        (
            429,
            "x-ratelimit-limit: 60\nx-ratelimit-remaining: 59\nx-ratelimit-reset: 9",
            None,
        ),
        (
            429,
            "x-rate-limit-limit: 0\nx-rate-limit-remaining: 0\nx-rate-limit-reset: 9",
            None,
        ),
        (200, "grpc-status: 9\ngrpc-retry-pushback-ms: -1", None),
        (200, "grpc-status: 9\ngrpc-retry-pushback-ms: never", None),
    ] {
        let partner = Partner::new(&["529", "grpc-9"]);
        assert_eq!(partner.held(status, fields).await, Some(1_000), "{fields}");
        let names = partner.0.warnings().into_iter().map(|it| it.name);
        let named: Vec<_> = names.collect();
        let expected: Vec<_> = expected.into_iter().map(|it| Some(it.into())).collect();
        assert_eq!(named, expected, "{fields}");
    }
    // A name is no place for a flood.
    let partner = Partner::new(&[]);
    let long = format!("x-quota-{}: 1", "a".repeat(9_000));
    assert_eq!(partner.held(429, &long).await, Some(1_000));
    let text = partner.0.warnings()[0].to_string();
    assert!(text.len() < 300, "{text}");
}

/// Details that cannot be read say nothing; those that say too much are cut.
#[tokio::test(start_paused = true)]
async fn details_of_grpc() {
    let negative =
        "CAgaOQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxINCgsI+///////////AQ==";
    let largest =
        "CAgaOAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIMCgoI//////////9/";
    let without_padding = RETRY_INFO.trim_end_matches('=');
    let partner = Partner::new(&[]);
    for (details, expected) in [
        (RETRY_INFO, Some(32_500)),
        (without_padding, Some(32_500)),
        (largest, Some(3_600_000)),
        (negative, None),
        ("", None),
        ("=", None),
        ("====", None),
        ("A", None),
        ("no base64!", None),
        (&without_padding[..without_padding.len() - 3], None),
        (&"/".repeat(60_000), None),
        (&"A".repeat(60_000), None),
    ] {
        let fields = format!("grpc-status: 8\ngrpc-status-details-bin: {details}");
        assert_eq!(partner.held(200, &fields).await, expected, "{details}");
        let other = format!("grpc-status: 0\ngrpc-status-details-bin: {details}");
        assert_eq!(partner.held(200, &other).await, None, "{details}");
    }
}

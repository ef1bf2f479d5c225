//! The page of `Limits::page` in Chromium, as the example mounts it: what a person on call sees and
//! does. `bash tests/page.sh` runs these tests.

use std::io::{Read, Write};

use axum::extract::Request;
use axum::middleware::Next;
use axum::routing::get;
use tidegate::Page;
use tidegate::rule::Period;

use super::app::App;
use super::browser::Browser;
use super::*;

/// One look of the page a second, a list that each process reads once a second, a busy machine.
const SOON: Duration = Duration::from_secs(6);
const TAB: char = '\u{e004}';
/// Keys as the page shows them.
const ACME: &str = "127.0.0.1:header.x-tenant|acme";
const GLOBEX: &str = "127.0.0.1:header.x-tenant|globex";
const ESCAPE: char = '\u{e00c}';

fn open(app: &App) -> Browser {
    let browser = Browser::open(&format!("http://{}/limits", app.address));
    browser.wait_for("#server", SOON, |text| text.ends_with("answers"));
    browser
}

/// Asks for `/login` as a customer of this tenant.
fn login(app: &App, tenant: &str) -> u16 {
    let answer = app.get_with("/login", &format!("x-tenant: {tenant}\r\n"));
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status.parse().expect("a status")
}

fn flood(app: &App, tenant: &str, requests: usize) {
    (0..requests).for_each(|_| _ = login(app, tenant));
}

/// Does what a dialog asks about, and waits until the page says this.
#[track_caller]
fn confirm(browser: &Browser, said: &str) {
    browser.click("#confirm-do");
    browser.wait_for("#said", SOON, |text| text.starts_with(said));
}

/// Waits until it is so, at most so long.
#[track_caller]
fn soon(otherwise: &str, most: Duration, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < most, "{otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two processes over this server.
fn two(server: &Redis) -> [App; 2] {
    [(); 2].map(|()| App::start(&[("REDIS_URL", &server.url)]))
}

/// A button in the row of a key.
fn button(table: &str, action: &str, key: &str) -> String {
    format!("{table} button[aria-label^=\"{action}… {key}\"]")
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_flood_is_seen_by_name_within_two_seconds() {
    let server = Redis::start();
    let apps = two(&server);
    let browser = open(&apps[0]);
    browser.wait_for("#nobody", SOON, |text| text == "Nobody is limited.");
    browser.sees(
        "[aria-label=export] .words",
        "plans: pro: 6 in any 30 seconds",
    );
    flood(&apps[0], "globex", 8);
    let seen = |name: &str, within| {
        let rows = "#limited-rows";
        browser.wait_for(rows, within, |text| text.contains(name))
    };
    let took = seen(GLOBEX, Duration::from_secs(2));
    println!("the flood is seen after {took:?}");
    // Another process tells Redis once a second, and this one asks once a second.
    flood(&apps[1], "acme", 25);
    let took = seen(ACME, Duration::from_secs(4));
    println!("the flood of the other process is seen after {took:?}");
    let first = "#limited-rows tr:first-child";
    browser.sees(first, "|acme");
    let denials = format!("{first} [data-label=Denials]");
    browser.wait_for(&denials, SOON, |text| text == "20");
    browser.wait_for("#limited-count", SOON, |text| text == "2");

    flood(&apps[0], "acme", 10);
    let denied = "[aria-label=login] [data-count=denied] span";
    browser.wait_for(denied, SOON, |text| text == "13 in all");
    browser.wait_for(&denials, SOON, |text| text == "30");
    let path = browser.run(
        "return document.querySelector('[aria-label=login] .chart .denied').getAttribute('d')",
    );
    assert!(!path.as_str().expect("a path").is_empty());
    browser.click("[data-span=hour]");
    browser.wait_for("[aria-label=login] .from", SOON, |text| text == "−1 h");
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_customer_is_let_through() {
    let server = Redis::start();
    let apps = two(&server);
    let browser = open(&apps[0]);
    flood(&apps[0], "acme", 7);
    assert_eq!([login(&apps[0], "acme"), login(&apps[1], "acme")], [429; 2]);
    browser.click(&button("#limited-rows", "let through", ACME));
    assert_eq!(browser.text("#confirm-rule"), "login");
    assert_eq!(browser.text("#confirm-key"), ACME);
    // Nothing happens before the answer.
    browser.press(ESCAPE);
    assert_eq!(login(&apps[0], "acme"), 429);

    browser.click(&button("#limited-rows", "let through", ACME));
    confirm(&browser, "Let through for 1 h");
    for app in &apps {
        soon("still limited", Duration::from_secs(2), || {
            login(app, "acme") == 200
        });
        assert!((0..20).all(|_| login(app, "acme") == 200));
    }
    let is_open = browser.run("return document.querySelector('dialog').open");
    assert_eq!(is_open, false);
    browser.wait_for("#let-through-rows", SOON, |text| {
        text.contains("login127.0.0.1:header.x-tenant|acmein 1 h") || text.contains("in 59 min")
    });
    let let_through = "[aria-label=login] [data-count=let_through] span";
    browser.wait_for(let_through, SOON, |text| text == "21 in all");

    browser.click(&button("#let-through-rows", "end", ACME));
    confirm(&browser, "Limited again");
    soon("still let through", SOON, || login(&apps[1], "acme") != 200);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_customer_is_blocked() {
    let server = Redis::start();
    let apps = two(&server);
    let browser = open(&apps[0]);
    flood(&apps[0], "acme", 7);
    let key = ACME;
    let shown = |text: &str| text.contains("blocked for");
    browser.click(&button("#limited-rows", "block", key));
    assert_eq!(browser.text("#confirm-title"), "Block this key?");
    assert_eq!(browser.text("#confirm-key"), key);
    browser.press(ESCAPE);
    assert!(!shown(&browser.text("#limited-rows")));

    browser.click(&button("#limited-rows", "block", key));
    browser.click("#confirm-span label:first-of-type");
    confirm(&browser, "Blocked for 5 min");
    browser.wait_for("#limited-rows", SOON, shown);
    let listed = |text: &str| text.contains("acmein 5 min") || text.contains("in 4 min");
    browser.wait_for("#blocked-rows", SOON, listed);
    // A count that is whole again helps nothing.
    browser.click(&button("#limited-rows", "reset", key));
    confirm(&browser, "Reset");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!([login(&apps[0], "acme"), login(&apps[1], "acme")], [429; 2]);
    assert_eq!(login(&apps[1], "globex"), 200);
    browser.sees("[aria-label=login] .more", "blocked by an operator");

    // The same by its text; the button that blocks ends it then.
    browser.write("[name=rule]", "login");
    browser.write("[name=key]", key);
    browser.click("#key-form .main");
    browser.wait_for("#key-blocked", SOON, |text| text.starts_with("Blocked for"));
    assert!(browser.text("#key-verdict").contains("would be denied"));
    let button_of_key = browser.text("#key-answer [data-do=block]");
    assert_eq!(button_of_key, "end the block…");
    browser.run("scrollTo(0, 0)");
    browser.click(&button("#blocked-rows", "end", key));
    confirm(&browser, "Block ended");
    soon("still blocked", SOON, || login(&apps[1], "acme") == 200);
    browser.wait_for("#key-answer [data-do=block]", SOON, |text| text == "block…");
    // The row that has the focus stays for a while.
    assert_eq!(browser.count("#blocked-rows tr:not(.gone)"), 0);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_customer_is_raised() {
    let server = Redis::start();
    let apps = two(&server);
    let browser = open(&apps[0]);
    // One that nobody had lately is told before it is confirmed.
    browser.write("[name=rule]", "login");
    browser.write("[name=key]", "127.0.0.1:header.x-tenant|acne");
    browser.click("#key-form .main");
    browser.sees("#key-verdict", "would be allowed");
    browser.click("#key-answer [data-do=raise]");
    assert!(browser.text("#confirm-effect").contains("is it the one?"));
    browser.press(ESCAPE);

    flood(&apps[0], "acme", 7);
    browser.run("scrollTo(0, 0)");
    browser.click(&button("#limited-rows", "raise", ACME));
    let expected = "Raise the limits of this key?";
    assert_eq!(browser.text("#confirm-title"), expected);
    assert!(!browser.text("#confirm-effect").contains("is it the one?"));
    let factor = |text| {
        browser.run("document.querySelector('[name=factor]').value = ''");
        browser.write("[name=factor]", text);
    };
    factor("2000");
    browser.click("#confirm-do");
    assert_eq!(browser.count("dialog[open]"), 1, "too much");
    factor("2.5");
    browser.click("#confirm-span [data-of=raise]");
    confirm(&browser, "Raised for 30 d");
    browser.wait_for("#limited-rows", SOON, |text| {
        text.contains("× 2.5 for 30 d")
    });
    soon("not raised", SOON, || login(&apps[1], "acme") == 200);
    browser.run("document.querySelector('#key-form').reset()");
    browser.write("[name=rule]", "login");
    browser.write("[name=key]", ACME);
    browser.click("#key-form .main");
    // Whole days until half a second is over.
    browser.wait_for("#key-raised", SOON, |text| {
        text.starts_with("Raised for 30 d") || text.starts_with("Raised for 29 d 23 h")
    });
    browser.sees("#key-quotas .quota:first-child p", "of 12 left");
    browser.run("scrollTo(0, 0)");
    browser.click(&button("#raised-rows", "end", ACME));
    confirm(&browser, "Raise ended");
    soon("still raised", SOON, || login(&apps[1], "acme") == 429);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_key_is_looked_up_and_reset() {
    let app = App::start(&[]);
    let browser = open(&app);
    browser.write("[name=rule]", "nothing");
    browser.click("#key-form .main");
    browser.sees("#key-error", "nothing");
    browser.run("document.querySelector('#key-form').reset()");

    flood(&app, "acme", 7);
    browser.write("[name=rule]", "login");
    browser.write("[name=key]", ACME);
    browser.click("#key-form .main");
    browser.sees("#key-verdict", "would be denied");
    let quota = "#key-quotas .quota:first-child p";
    browser.sees(quota, "0 of 5 left, full again in");
    assert_eq!(browser.text("#key-error"), "");

    browser.click("#key-answer [data-do=reset]");
    browser.click("#confirm-do");
    browser.wait_for("#said", SOON, |text| {
        text == "Reset: 127.0.0.1:header.x-tenant|acme, rule login."
    });
    assert_eq!(login(&app, "acme"), 200);
    browser.sees(quota, "4 of 5 left");

    // The same from a row, and with the keyboard alone: the dialog keeps the focus.
    flood(&app, "globex", 7);
    let reset = button("#limited-rows", "reset", GLOBEX);
    browser.wait_for(&reset, SOON, |text| !text.is_empty());
    browser.run(&format!("document.querySelector({}).focus()", json!(reset)));
    browser.press('\u{e007}');
    assert_eq!(browser.text("#confirm-key"), GLOBEX);
    for _ in 0..4 {
        let is_inside = "return document.activeElement === document.body \
                         || document.activeElement.closest('dialog') !== null";
        assert_eq!(browser.run(is_inside), true);
        browser.press(TAB);
    }
    browser.run("document.querySelector('#confirm-do').focus()");
    browser.press('\u{e007}');
    browser.wait_for("#said", SOON, |text| {
        text.starts_with("Reset: 127.0.0.1:header.x-tenant|globex")
    });
    assert_eq!(login(&app, "globex"), 200);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_second_process_comes_and_goes() {
    let server = Redis::start();
    let start = |name| App::start(&[("REDIS_URL", &server.url), ("HOSTNAME", name)]);
    let first = start("web-1");
    let browser = open(&first);
    browser.wait_for("#fleet-sum", SOON, |text| text.starts_with("one process"));
    let second = start("web-2");
    let three = Duration::from_secs(3);
    let took = browser.wait_for("#fleet-sum", three, |text| text.starts_with("2 processes"));
    println!("the second process is seen after {took:?}");
    assert_eq!(browser.count("#processes article"), 2);
    assert_eq!(browser.count("#processes .this"), 1);
    let name = "#processes article:not(.this) h3";
    browser.wait_for(name, SOON, |text| text.starts_with("web-2"));
    let facts = browser.text("#facts");
    assert!(facts.starts_with("Shown by process web-1 ("), "{facts}");
    second.stop("-KILL");
    let ten = Duration::from_secs(10);
    let took = browser.wait_for("#fleet-sum", ten, |text| text.starts_with("one process"));
    println!("the killed process is gone after {took:?}");
    assert_eq!(browser.count("#processes article"), 1);
    browser.check_log();
}

/// A client that writes to Redis may claim that a process has any name.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn names_of_other_processes_are_never_markup() {
    let server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url)]);
    let browser = open(&app);
    let script = "<img src=x onerror='window.isRun = 1'>\u{202e}".repeat(200);
    let facts = json!({
        "started_ago_s": 1e300, "name": script, "content_hash": script, "version": u64::MAX,
        "allowed_per_s": u64::MAX, "last_error": {"kind": script, "ago_s": 1e300},
        "warnings": [script],
    });
    let row = json!([script, script, 3, 0, 1e300, 1e300, u64::MAX, script]);
    let text = json!({"facts": facts, "limited": [row]});
    let mut connection = server.connection();
    let prefix = "{web_app:CurrentLimiter:~fleet}";
    let exists: bool = kit::query(&server, &format!("EXISTS {prefix}:processes"));
    assert!(exists, "the app has another name");
    let process = "<b>zorro</b>";
    let began = Instant::now();
    // Within the time in which a process has to say something again.
    while !browser.text("#limited-rows").contains("onerror") {
        assert!(began.elapsed() < SOON);
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("a clock");
        redis::pipe()
            .set_ex(format!("{prefix}:process:{process}"), text.to_string(), 60)
            .zadd(
                format!("{prefix}:processes"),
                process,
                now.as_millis() as u64,
            )
            .exec(&mut connection)
            .expect("is written");
        std::thread::sleep(Duration::from_millis(200));
    }
    let name = browser.text("#processes article:not(.this) h3");
    assert!(name.starts_with("<img src=x onerror"), "{name}");
    assert!(!name.contains("202e") && name.len() < 100, "{name}");
    for (width, height) in [(400, 800), (1280, 900)] {
        browser.resize(width, height);
        let whole = browser.run("return document.documentElement.scrollWidth");
        assert!(whole.as_u64() <= Some(width.into()), "{whole}");
    }
    assert!(browser.run("return window.isRun").is_null());
    assert_eq!(browser.count("main img, main b:not([id]) b, main i img"), 0);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn redis_is_gone_and_comes_back() {
    let mut server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url)]);
    let browser = open(&app);
    server.kill();
    let ten = Duration::from_secs(10);
    browser.wait_for("#banners", ten, |text| {
        text.contains("Redis does not answer")
    });
    assert_eq!(browser.count("#processes article"), 1);
    server.restart();
    browser.wait_for("#banners", 2 * ten, |text| !text.contains("Redis"));
    let address = app.address.clone();
    app.stop("-TERM");
    browser.wait_for("#server", SOON, |text| text == "no answer");
    browser.wait_for("#banners", SOON, |text| {
        text == "This process does not answer."
    });
    let (_, port) = address.rsplit_once(':').expect("a port");
    let _app = App::start(&[("REDIS_URL", &server.url), ("PORT", port)]);
    browser.wait_for("#server", SOON, |text| text.ends_with("answers"));
    browser.check_log();
}

/// Names of rules come from files and keys from clients: both are text.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn names_are_never_markup() {
    let script = "<script>window.isRun = 1</script>";
    let image = "<img src=x onerror='window.isRun = 1'>";
    let rules = format!(
        "[rules.login]\nmax-count = 1\nwindow = \"1m\"\nkey = \"header:x-tenant\"\n\
         [rules.\"{script}\"]\nmax-count = 1\nwindow = \"1m\"\n\
         [rules.\"{image}\"]\nmax-count = 1\nwindow = \"1m\"\n\
         [rules.\"a\\u202etxt\"]\nmax-count = 1\nwindow = \"1m\"\n"
    );
    let file = kit::LimitsFile::new(&rules);
    let app = App::start(&[("LIMITS", file.path.to_str().expect("a path of text"))]);
    flood(&app, script, 4);
    flood(&app, image, 4);
    let url = "/%3Cscript%3Ewindow.isRun%20=%201%3C/script%3E";
    assert_eq!([app.status(url), app.status(url)], [200, 429]);
    // Seen for the first time and later.
    for _ in 0..2 {
        let browser = open(&app);
        browser.wait_for("#rules", SOON, |text| {
            text.contains(script) && text.contains(image)
        });
        browser.sees("#rules", "a\\u{202e}txt");
        // What is not written as it is in a key is written as its number.
        browser.wait_for("#limited-rows", SOON, |text| {
            text.contains("%3Cscript%3E") && text.contains("%3Cimg") && text.contains(script)
        });
        browser.click(&button("#limited-rows", "reset", "all requests together"));
        assert_eq!(browser.text("#confirm-rule"), script);
        browser.press(ESCAPE);
        flood(&app, script, 1);
        std::thread::sleep(Duration::from_secs(2));
        assert!(browser.run("return window.isRun").is_null());
        assert_eq!(browser.count("main script, main img"), 0);
        browser.check_log();
    }
}

/// A page of limits in this process, of the rule "search" for users, of whom some have the plan
/// "pro". Returns where it is.
fn serve(page: fn(Page) -> Page) -> String {
    serve_behind(page, |page| page)
}

/// The same, behind what is put around the page.
fn serve_behind(page: fn(Page) -> Page, guard: fn(Router) -> Router) -> String {
    serve_app(move || {
        let pro = Quotas::new([Quota::per_minute(2)]).expect("quotas");
        let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
        let rule = rule.with_plan("pro", pro).expect("a plan");
        let limits = Limits::new([rule])
            .key(Header::new("x-user"))
            .plan(|head| head.headers.get("x-plan")?.to_str().ok())
            .process_name("<i>web</i>-7");
        Router::new()
            .route("/search", get("found").layer(limits.layer("search")))
            .nest_service("/limits", guard(page(limits.page()).router()))
    })
}

/// An app in this process. Returns where it is.
fn serve_app(make: impl FnOnce() -> Router + Send + 'static) -> String {
    let (tell, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let app = make();
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            tell.send(address.to_string()).expect("is heard");
            axum::serve(listener, app).await
        })
    });
    address.recv().expect("an address")
}

fn search(address: &str) -> String {
    search_as(address, "x-user: alice")
}

/// A search with these fields, and its status.
fn search_as(address: &str, fields: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("a server");
    let head =
        format!("GET /search HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer[9..12].to_owned()
}

/// A browser keeps the user and the password of an address, and fetches from no such address.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn an_address_may_have_credentials() {
    let authenticated = |page: Router| {
        page.layer(axum::middleware::from_fn(
            async |request: Request, next: Next| {
                // "operator:secret" in base64.
                let wanted = "Basic b3BlcmF0b3I6c2VjcmV0";
                match request.headers().get("authorization") {
                    Some(given) if given == wanted => next.run(request).await,
                    _ => (
                        StatusCode::UNAUTHORIZED,
                        [("www-authenticate", "Basic realm=\"limits\"")],
                    )
                        .into_response(),
                }
            },
        ))
    };
    let address = serve_behind(Page::allow_changes, authenticated);
    for path in ["/limits/", "/limits"] {
        let browser = Browser::open(&format!("http://operator:secret@{address}{path}"));
        browser.wait_for("#server", SOON, |text| text.ends_with("answers"));
        (0..5).for_each(|_| drop(search(&address)));
        browser.click("#limited-rows tr:first-child button[aria-label^=reset]");
        confirm(&browser, "Reset");
        browser.click("nav a[href=\"#now\"]");
        browser.check_log();
    }
}

/// The table of who is limited: the plan, the denials of the last seconds, and a filter.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn rows_are_filtered_and_have_a_plan() {
    let address = serve(|page| page.allow_changes().show_keys());
    let browser = Browser::open(&format!("http://{address}/limits"));
    browser.wait_for("#server", SOON, |text| text.ends_with("answers"));
    let row = "#limited-rows tr:first-child";
    let cell = |name: &str| format!("{row} [data-label=\"{name}\"]");
    let is_shown = |selector: &str| {
        let selector = json!(selector);
        browser.run(&format!(
            "return document.querySelector({selector}).checkVisibility()"
        ))
    };
    (0..4).for_each(|_| drop(search(&address)));
    browser.sees(row, "alice");
    assert_eq!(is_shown("th.plan"), false, "nobody has a plan");
    (0..12).for_each(|_| drop(search_as(&address, "x-user: bob\r\nx-plan: pro")));
    browser.wait_for(&cell("Plan"), SOON, |text| text == "pro");
    assert_eq!(is_shown("th.plan"), true);
    browser.wait_for(&cell("Denials/s"), SOON, |text| text == "2");
    browser.wait_for(&cell("Denials/s"), 2 * SOON, |text| text == "0");
    let plan_of_alice = "#limited-rows tr:nth-child(2) [data-label=Plan]";
    assert_eq!(browser.text(plan_of_alice), "–");

    let keys = |wanted: &[&str]| {
        let found = browser.run(
            "return [...document.querySelectorAll('#limited-rows bdi')].map((it) => it.textContent)",
        );
        assert_eq!(found, json!(wanted));
    };
    let filter = |text: &str| {
        browser.run("document.querySelector('#filter').value = ''");
        browser.write("#filter", text);
    };
    keys(&["bob", "alice"]);
    for (text, wanted) in [
        ("ALI", &["alice"][..]),
        ("search b", &["bob"]),
        ("pro", &["bob"]),
        (" ", &["bob", "alice"]),
        ("login", &[]),
    ] {
        filter(text);
        keys(wanted);
    }
    let nobody = browser.text("#nobody");
    assert_eq!(nobody, "None of these 2 keys matches the filter.");
    assert_eq!(browser.text("#limited-count"), "2");
    filter("e");
    for width in [360, 400, 768, 910, 1_280] {
        browser.resize(width, 900);
        let whole = browser.run("return document.documentElement.scrollWidth");
        assert!(whole.as_u64() <= Some(width.into()), "{width}: {whole}");
    }
    // It stays while the page looks again, and the row that is left can be helped.
    filter("alice");
    std::thread::sleep(Duration::from_secs(2));
    keys(&["alice"]);
    browser.click(&button("#limited-rows", "let through", "alice"));
    browser.click("#confirm-do");
    browser.sees("#let-through-rows", "alice");
    filter("bob");
    assert_eq!(browser.count("#let-through-rows tr"), 0);
    // "look" asks for the plan of the row.
    browser.click(&button("#limited-rows", "look", "bob").replace('…', ""));
    browser.wait_for("#key-name", SOON, |text| text.ends_with("plan pro"));
    browser.check_log();
}

/// Words of rows that are seen and that a line break is inside of.
const BROKEN: &str = "const broken = []; \
    const walker = document.createTreeWalker(document.querySelector('#limited-rows'), \
      NodeFilter.SHOW_TEXT); \
    while (walker.nextNode()) { \
      const { currentNode: node } = walker; \
      for (const word of node.textContent.matchAll(/[^ ]+/g)) { \
        const range = document.createRange(); \
        range.setStart(node, word.index); \
        range.setEnd(node, word.index + word[0].length); \
        const lines = new Set([...range.getClientRects()].map((it) => it.top)); \
        if (lines.size > 1) broken.push(word[0]); \
      } \
    } \
    return broken";

/// Eighty keys of forty characters, of whom one is blocked: a line for each, which names its key,
/// what it has used, and until when.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn eighty_long_keys_are_a_line_each() {
    let address = serve(|page| page.allow_changes().show_keys());
    let key = |number: usize| format!("{number:02}.customer@example.com/of-the-region-77");
    assert_eq!(key(0).len(), 40);
    for number in 0..80 {
        let plan = ["\r\nx-plan: pro", ""][number % 2];
        let fields = format!("x-user: {}{plan}", key(number));
        (0..3).for_each(|_| drop(search_as(&address, &fields)));
    }
    let browser = Browser::open(&format!("http://{address}/limits"));
    browser.wait_for("#limited-count", SOON, |text| text == "80");
    assert_eq!(browser.text("#more-limited"), "show all 80 keys");
    let first = "#limited-rows tr:first-child";
    let cell = |name: &str| format!("{first} [data-label={name}]");
    browser.wait_for(&cell("Used"), SOON, |text| text == "2 of 2");
    browser.click(&format!("{first} button[aria-label^=block]"));
    browser.write("[name=note]", "spam, ticket 4711");
    confirm(&browser, "Blocked for 1 h");
    browser.wait_for(&cell("Until"), SOON, |text| text.starts_with("blocked for"));
    browser.sees("#blocked-rows", "spam, ticket 4711");
    browser.click(&format!("{first} button[aria-label^=raise]"));
    browser.click("#confirm-do");
    let end = "#blocked-rows button";
    browser.wait_for("#said", SOON, |text| text.starts_with("Raised"));
    browser.run("scrollTo(0, 0)");
    browser.click(end);
    confirm(&browser, "Block ended");
    // A raised key is listed while it is denied.
    let fields = format!("x-user: {}\r\nx-plan: pro", key(0));
    (0..3).for_each(|_| drop(search_as(&address, &fields)));
    browser.wait_for(&cell("Until"), SOON, |text| text.starts_with("× 2 for"));
    browser.wait_for(&cell("Used"), SOON, |text| text == "4 of 4");

    browser.wait_for("#said", 3 * SOON, str::is_empty);
    for (width, height) in [(1280, 900), (1024, 900), (400, 900)] {
        browser.resize(width, height);
        browser.run("document.activeElement.blur(); scrollTo(0, 0)");
        picture(&browser, &format!("eighty_{width}"));
        assert_eq!(browser.run(BROKEN), json!([]), "{width}");
        let cut = "return [...document.querySelectorAll('#limited-rows bdi span')] \
                   .filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.textContent)";
        assert!(width < 1000 || browser.run(cut) == json!([]), "{width}");
        let outside = "const { right } = document.querySelector('#limited-rows') \
                         .getBoundingClientRect(); \
                       return [...document.querySelectorAll('#limited-rows *')] \
                         .filter((it) => it.getBoundingClientRect().right > right) \
                         .map((it) => it.outerHTML.slice(0, 80))";
        assert_eq!(browser.run(outside), json!([]), "{width}");
        let tenth = "return document.querySelector('#limited-rows tr:nth-child(10)') \
                     .getBoundingClientRect().bottom";
        let tenth = browser.run(tenth).as_f64().expect("a number");
        assert!(tenth <= 700., "{width}: ten rows need {tenth} px");
        let whole = browser.run("return document.documentElement.scrollWidth");
        assert!(whole.as_u64() <= Some(width.into()), "{width}: {whole}");
    }
    // The rest is behind a tap.
    let is_shown = |selector: &str| {
        let selector = json!(selector);
        browser.run(&format!(
            "return document.querySelector({selector}).checkVisibility()"
        ))
    };
    assert_eq!(is_shown(&cell("Used")), false);
    browser.click(&cell("Key"));
    assert_eq!(is_shown(&cell("Used")), true);
    assert_eq!(browser.run(BROKEN), json!([]));
    picture(&browser, "eighty_open");
    browser.click(&format!("{first} button[aria-label^=reset]"));
    confirm(&browser, "Reset");
    browser.click(&format!("{first} .fold button"));
    assert_eq!(is_shown(&cell("Used")), false);
    browser.check_log();
}

/// Keeps what is seen, if somebody asked for pictures.
fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("TIDEGATE_SCREENSHOTS") {
        let file = PathBuf::from(folder).join(format!("{name}.png.base64"));
        std::fs::write(file, browser.screenshot()).expect("is written");
    }
}

/// Where rects overlap, one of them covers the other.
const COVERED: &str = "const said = document.querySelector('#said').getBoundingClientRect(); \
    const overlaps = (it) => { const rect = it.getBoundingClientRect(); \
      return rect.width > 0 && rect.left < said.right && rect.right > said.left \
        && rect.top < said.bottom && rect.bottom > said.top; }; \
    return [...document.querySelectorAll('tr, button, a, input, h2, article, .pill, h1')] \
      .filter((it) => it.checkVisibility() && overlaps(it)).map((it) => it.outerHTML.slice(0, 80))";

/// What was done is said beside everything else, and nothing moves for it.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn what_is_said_covers_nothing() {
    let app = App::start(&[]);
    for number in 0..12 {
        flood(&app, &format!("{}-{number}", "x".repeat(40)), 7);
    }
    let browser = open(&app);
    browser.wait_for("#limited-count", SOON, |text| text == "12");
    let height = "return document.querySelector('header').offsetHeight";
    for (width, screen) in [(1280, 700), (400, 700), (360, 640)] {
        browser.resize(width, screen);
        browser.wait_for("#said", 3 * SOON, str::is_empty);
        let before = browser.run(height);
        browser.run("scrollTo(0, 0)");
        if width == 400 {
            // It stays open.
            browser.click("#limited-rows tr:first-child .fold button");
        }
        browser.click("#limited-rows tr:first-child button[aria-label^=reset]");
        browser.click("#confirm-do");
        browser.wait_for("#said", SOON, |text| !text.is_empty());
        assert_eq!(browser.run(height), before, "{width}");
        let seen = "const rect = document.querySelector('#said').getBoundingClientRect(); \
                    return rect.top >= 0 && rect.bottom <= innerHeight && rect.width > 100 \
                      && rect.height >= 15";
        assert_eq!(browser.run(seen), true, "{width}");
        assert_eq!(browser.run(COVERED), json!([]), "{width}");
        // Wherever the page is scrolled to, it is in the header, which has its own place.
        browser.run("scrollTo(0, document.body.scrollHeight)");
        let inside = "const said = document.querySelector('#said').getBoundingClientRect(); \
                      const head = document.querySelector('header').getBoundingClientRect(); \
                      return said.top >= head.top && said.bottom <= head.bottom";
        assert_eq!(browser.run(inside), true, "{width}");
    }
    browser.check_log();
}

/// A page that shows no keys helps a key by its hash.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn hidden_keys_are_helped_by_their_hash() {
    let address = serve(Page::allow_changes);
    (0..5).for_each(|_| drop(search(&address)));
    let browser = Browser::open(&format!("http://{address}/limits"));
    let row = "#limited-rows tr:first-child";
    browser.wait_for(row, SOON, |text| text.starts_with("search#"));
    let key = browser.text(&format!("{row} bdi"));
    browser.click(&format!("{row} button:last-child"));
    browser.sees("#key-verdict", "denied");
    assert_eq!(browser.text("#key-of-row code"), key);
    browser.click("#key-answer [data-do=reset]");
    assert_eq!(browser.text("#confirm-key"), key);
    browser.click("#confirm-do");
    browser.wait_for("#said", SOON, |text| {
        text == format!("Reset: {key}, rule search.")
    });
    let statuses = [(); 3].map(|()| search(&address));
    assert_eq!(statuses, ["200", "200", "429"]);

    browser.run("scrollTo(0, 0)");
    browser.click(&button("#limited-rows", "let through", &key));
    browser.click("#confirm-span label:first-of-type");
    confirm(&browser, "Let through for 5 min");
    assert_eq!(search(&address), "200");
    let is_named = browser.run("return document.body.innerText.includes('alice')");
    assert_eq!(is_named, false);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_page_that_may_change_nothing_has_no_buttons_for_it() {
    let address = serve(Page::show_keys);
    (0..5).for_each(|_| drop(search(&address)));
    let browser = Browser::open(&format!("http://{address}/limits/"));
    browser.sees("#limited-rows", "alice");
    browser.click("#limited-rows button:last-child");
    browser.sees("#key-verdict", "denied");
    let shown = browser.run(
        "return [...document.querySelectorAll('main button')] \
           .filter((it) => it.checkVisibility()).map((it) => it.textContent)",
    );
    assert_eq!(shown, json!(["look", "Look", "5 minutes", "1 hour"]));
    assert!(browser.text("#rights").contains(".allow_changes()"));
    browser.check_log();
}

/// What somebody points at stays where it is while the numbers change.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn the_focus_stays_while_rows_change() {
    let app = App::start(&[]);
    let browser = open(&app);
    flood(&app, "acme", 10);
    let look = "#limited-rows button:last-child";
    browser.wait_for(look, SOON, |text| text == "look");
    browser.run(&format!("document.querySelector('{look}').focus()"));
    flood(&app, "globex", 30);
    browser.sees("#limited-rows", GLOBEX);
    let focused = "return document.activeElement.getAttribute('aria-label')";
    assert_eq!(browser.run(focused), format!("look {ACME}, rule login"));
    let first = "#limited-rows tr:first-child";
    assert!(browser.text(first).contains(ACME));
    browser.run("document.activeElement.blur()");
    browser.sees(first, GLOBEX);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn it_fits_the_screen() {
    let app = App::start(&[]);
    flood(&app, &"x".repeat(60), 10);
    flood(&app, "acme", 10);
    for path in ["/limits", "/limits/"] {
        let browser = Browser::open(&format!("http://{}{path}", app.address));
        browser.sees("#limited-rows", "acme");
        browser.click(&button("#limited-rows", "let through", ACME));
        browser.click("#confirm-do");
        browser.sees("#let-through-rows", "acme");
        for (width, height) in [
            (360, 740),
            (400, 800),
            (768, 1024),
            (1010, 900),
            (1280, 900),
        ] {
            browser.resize(width, height);
            let overflow = browser.run(
                "const limit = document.documentElement.clientWidth; \
                 return [...document.querySelectorAll('body *')] \
                   .filter((it) => it.getBoundingClientRect().right > limit + 1) \
                   .filter((it) => !it.closest('thead')) \
                   .map((it) => it.outerHTML.slice(0, 100))",
            );
            assert_eq!(overflow, json!([]), "{width}x{height}");
            let whole = browser.run("return document.documentElement.scrollWidth");
            let fits = whole.as_u64() <= Some(width.into());
            assert!(fits, "{width}x{height}: {whole}");
        }
        browser.check_log();
    }
}

/// The pictures of the page, written when `tests/page.sh --screenshots FOLDER` asks for them: three
/// processes that share one Redis, and customers of whom one asks far too often.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn screenshots() {
    if std::env::var_os("TIDEGATE_SCREENSHOTS").is_none() {
        return;
    }
    let server = Redis::start();
    // The page shows the name of the file as it is given here.
    let apps = ["web-1", "web-2", "web-3"].map(|name| {
        App::start(&[
            ("REDIS_URL", &server.url),
            ("LIMITS", "examples/limits.toml"),
            ("HOSTNAME", name),
        ])
    });
    let browser = open(&apps[0]);
    browser.hide_scroll_bars();
    browser.resize(1280, 1400);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, app) in apps.iter().enumerate() {
            let is_over = &is_over;
            scope.spawn(move || customers(app, index, is_over));
        }
        std::thread::sleep(LOAD);
        let shoot = |name: &str, width, height| {
            browser.resize(width, height);
            browser.run("document.activeElement.blur()");
            std::thread::sleep(Duration::from_secs(2));
            picture(&browser, name);
        };
        let show = |section: &str| {
            browser.run(&format!(
                "document.querySelector('{section}').scrollIntoView()"
            ));
        };
        browser.click(&button(
            "#limited-rows",
            "let through",
            "127.0.0.1:header.x-tenant|initech",
        ));
        browser.write("[name=note]", "a demo until noon");
        confirm(&browser, "Let through");
        browser.click(&button("#limited-rows", "block", GLOBEX));
        browser.write("[name=note]", "spam, ticket 4711");
        confirm(&browser, "Blocked");
        browser.click(&button("#limited-rows", "raise", ACME));
        shoot("raise", 1280, 900);
        shoot("narrow_raise", 400, 900);
        browser.resize(1280, 1400);
        browser.click("#confirm-do");
        browser.wait_for("#said", 3 * SOON, str::is_empty);
        shoot("web_app", 1280, 1425);
        shoot("flood", 1280, 900);
        browser.click("#limited-rows tr:first-child button:last-child");
        browser.wait_for("#key-verdict", SOON, |text| !text.is_empty());
        show("#fleet");
        shoot("fleet_and_key", 1280, 800);
        browser.run("scrollTo(0, 0)");
        shoot("narrow", 400, 1600);
        show("#key");
        shoot("narrow_key", 400, 900);
        browser.darken();
        browser.run("scrollTo(0, 0)");
        shoot("dark_narrow", 400, 1600);
        shoot("dark", 1280, 1400);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A customer's month in Berlin, of which little is left, and that of another one, who has none.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn screenshots_of_a_budget() {
    let address = serve_app(|| {
        let berlin = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
        let month = Policy::calendar(berlin, 10_000);
        let rule = Rule::with_policies("chat", [month]).expect("a rule");
        let limits = Limits::new([rule]).process_name("web-1");
        let limits = limits.key(Header::new("x-user"));
        let layer = kit::http::costly(limits.layer("chat"));
        Router::new()
            .route("/search", get("found").layer(layer))
            .nest_service(
                "/limits",
                limits.page().show_keys().allow_changes().router(),
            )
    });
    let ask =
        |user: &str, cost: u64| search_as(&address, &format!("x-user: {user}\r\nx-cost: {cost}"));
    assert_eq!([ask("globex", 10_000), ask("globex", 25)], ["200", "429"]);
    let acme = [9_712, 400, 350, 300].map(|cost| ask("acme", cost));
    assert_eq!(acme, ["200", "429", "429", "429"]);
    let browser = Browser::open(&format!("http://{address}/limits/"));
    browser.hide_scroll_bars();
    browser.sees("#limited-rows", "globex");
    browser.click("#limited-rows tr:first-child button:last-child");
    browser.sees("#key-name", "acme");
    let quotas = browser.text("#key-quotas");
    let told = "chat: 10,000 a month, Berlin288 left until 1 ";
    let holds_here = quotas.contains(told) && quotas.contains(" 00:00");
    assert!(holds_here, "{quotas}");
    browser.resize(1280, 880);
    browser.run("document.activeElement.blur()");
    browser.run("scrollTo(0, 0)");
    picture(&browser, "budget");
    browser.check_log();
}

/// Long enough for graphs in which something is seen.
const LOAD: Duration = Duration::from_secs(100);

/// Ten customers, the first of them by far the most often.
const TENANTS: &str = "acme globex initech umbrella hooli stark wayne wonka cyberdyne soylent";

fn customers(app: &App, process: usize, is_over: &AtomicBool) {
    let mut turn = process;
    while !is_over.load(Ordering::Relaxed) {
        turn += 1;
        for (rank, tenant) in kit::words(TENANTS).into_iter().enumerate() {
            if turn.is_multiple_of(rank * 2 + 1) {
                login(app, tenant);
            }
        }
        if turn.is_multiple_of(3) {
            app.get("/getId");
            app.get("/answer?status=200");
        }
        if turn.is_multiple_of(40) {
            app.get("/export");
        }
        // Waves of twenty seconds.
        let is_wave = (turn / 100).is_multiple_of(2);
        std::thread::sleep(Duration::from_millis(if is_wave { 60 } else { 140 }));
    }
}

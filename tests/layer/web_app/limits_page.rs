//! The page of `Limits::page` in Chromium, as the example mounts it: what a person on call sees and
//! does. `bash tests/page.sh` runs these tests.

use axum::extract::Request;
use axum::middleware::Next;
use axum::routing::get;
use tidegate::Page;
use tidegate::rule::Period;

use super::app::App;
use super::browser::{Browser, SOON, button};
use super::*;

fn open(app: &App) -> Browser {
    open_at(&app.address)
}

fn open_at(address: &str) -> Browser {
    let browser = Browser::open(&format!("http://{address}/limits"));
    browser.play(&[], "until #server ends answers");
    browser
}

/// Asks for `/login` as a customer of this tenant.
fn login(app: &App, tenant: &str) -> u16 {
    status_of(&app.get_with("/login", &format!("x-tenant: {tenant}\r\n")))
}

/// Plays steps in the page of the first of two processes over one server.
fn play_in_first_of_two(steps: &str) {
    let server = Redis::start();
    let [one, other] = [(); 2].map(|()| App::start(&[("REDIS_URL", &server.url)]));
    open(&one).play(&[&one.address, &other.address], steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_flood_is_seen_by_name_within_two_seconds() {
    let steps = r#"
        until #nobody is Nobody is limited.
        until @export .words has plans: pro: 6 in any 30 seconds
        login 0 globex x8; within 2 #limited-rows has GLOBEX
        // Another process tells Redis once a second, and this one asks once a second.
        login 1 acme x25; within 4 #limited-rows has ACME
        until #limited-rows tr:first-child has |acme
        until #limited-rows tr:first-child [data-label=Denials] is 20; until #limited-count is 2
        login 0 acme x10; until @login [data-count=denied] span is 13 in all
        until #limited-rows tr:first-child [data-label=Denials] is 30
        count [aria-label=login] .chart .denied[d]:not([d=""]) = 1
        click [data-span=hour]; until @login .from is −1 h"#;
    play_in_first_of_two(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_customer_is_let_through() {
    let steps = r#"
        login 0 acme x7; login 0 acme = 429; login 1 acme = 429
        press let through of ACME in #limited-rows
        #confirm-rule is login; #confirm-key is ACME
        // Nothing happens before the answer.
        key Escape; login 0 acme = 429
        press let through of ACME in #limited-rows; confirm Let through for 1 h
        obeys login 0 acme = 200; login 0 acme x20 = 200
        obeys login 1 acme = 200; login 1 acme x20 = 200
        run return document.querySelector('dialog').open = false
        until #let-through-rows has x-tenant|acmein 1 h or in 59 min
        until @login [data-count=let_through] span is 21 in all
        press end of ACME in #let-through-rows; confirm Limited again; soon login 1 acme = 429"#;
    play_in_first_of_two(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_customer_is_blocked() {
    let steps = r#"
        login 0 acme x7; press block of ACME in #limited-rows
        #confirm-title is Block this key?; #confirm-key is ACME
        key Escape; #limited-rows lacks blocked for
        press block of ACME in #limited-rows; click #confirm-span label:first-of-type
        confirm Blocked for 5 min; until #limited-rows has blocked for
        until #blocked-rows has acmein 5 min or in 4 min
        // A count that is whole again helps nothing.
        press reset of ACME in #limited-rows; confirm Reset; wait 2000
        login 0 acme = 429; login 1 acme = 429; login 1 globex = 200
        until @login .more has blocked by an operator
        // The same by its text; the button that blocks ends it then.
        look-up ACME; until #key-blocked begins Blocked for; #key-verdict has would be denied
        #key-answer [data-do=block] is end the block…
        press end of ACME in #blocked-rows; confirm Block ended; soon login 1 acme = 200
        until #key-answer [data-do=block] is block…
        // The row that has the focus stays for a while.
        count #blocked-rows tr:not(.gone) = 0"#;
    play_in_first_of_two(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_customer_is_raised() {
    let steps = r#"
        // One that nobody had lately is told before it is confirmed.
        look-up 127.0.0.1:header.x-tenant|acne; until #key-verdict has would be allowed
        click #key-answer [data-do=raise]; #confirm-effect has is it the one?; key Escape
        login 0 acme x7; press raise of ACME in #limited-rows
        #confirm-title is Raise the limits of this key?; #confirm-effect lacks is it the one?
        // Too much.
        write [name=factor] = 2000; click #confirm-do; count dialog[open] = 1
        write [name=factor] = 2.5; click #confirm-span [data-of=raise]; confirm Raised for 30 d
        until #limited-rows has × 2.5 for 30 d; soon login 1 acme = 200; look-up ACME
        // What it would end is shown first.
        press raise of ACME in #limited-rows; write [name=factor] = 2; click #confirm-do
        until #confirm-error has is raised by 2.5 for; #confirm-do is Replace that raise
        key Escape; press raise of ACME in #limited-rows; #confirm-do is Raise; key Escape
        // Whole days until half a second is over.
        until #key-raised begins Raised for 30 d or Raised for 29 d 23 h
        until #key-quotas .quota:first-child p has of 12 left
        press end of ACME in #raised-rows; confirm Raise ended; soon login 1 acme = 429"#;
    play_in_first_of_two(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_key_is_looked_up_and_reset() {
    let app = App::start(&[]);
    let (browser, addresses) = (open(&app), [&*app.address]);
    let steps = r#"
        write [name=rule] = nothing; click #key-form .main; until #key-error has nothing
        login 0 acme x7; look-up ACME; until #key-verdict has would be denied
        until #key-quotas .quota:first-child p has 0 of 5 left, full again in
        #key-error is ; click #key-answer [data-do=reset]
        confirm Reset: ACME, rule login.; login 0 acme = 200
        until #key-quotas .quota:first-child p has 4 of 5 left; login 0 globex x7"#;
    browser.play(&addresses, steps);
    // The same from a row, and with the keyboard alone: the dialog keeps the focus.
    let reset = button("#limited-rows", "reset", "127.0.0.1:header.x-tenant|globex");
    browser.wait_for(&reset, SOON, |text| !text.is_empty());
    browser.run(&format!("document.querySelector({}).focus()", json!(reset)));
    browser.play(&addresses, "key Enter; #confirm-key is GLOBEX");
    for _ in 0..4 {
        let is_inside = "return document.activeElement === document.body \
                         || document.activeElement.closest('dialog') !== null";
        assert_eq!(browser.run(is_inside), true);
        browser.play(&addresses, "key Tab");
    }
    browser.run("document.querySelector('#confirm-do').focus()");
    let steps = "key Enter; until #said begins Reset: GLOBEX; login 0 globex = 200";
    browser.play(&addresses, steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_second_process_comes_and_goes() {
    let server = Redis::start();
    let start = |name| App::start(&[("REDIS_URL", &server.url), ("HOSTNAME", name)]);
    let first = start("web-1");
    let browser = open(&first);
    browser.play(&[], "until #fleet-sum begins one process");
    let second = start("web-2");
    let steps = r#"
        within 3 #fleet-sum begins 2 processes
        count #processes article = 2; count #processes .this = 1
        until #processes article:not(.this) h3 begins web-2
        #facts begins Shown by process web-1 ("#;
    browser.play(&[], steps);
    second.stop("-KILL");
    let steps = "within 10 #fleet-sum begins one process; count #processes article = 1";
    browser.play(&[], steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn redis_is_gone_and_comes_back() {
    let mut server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url)]);
    let browser = open(&app);
    server.kill();
    let steps = "within 10 #banners has Redis does not answer; count #processes article = 1";
    browser.play(&[], steps);
    server.restart();
    browser.play(&[], "within 20 #banners lacks Redis");
    let address = app.address.clone();
    app.stop("-TERM");
    let steps = r#"
        until #server is no answer; until #banners is This process does not answer."#;
    browser.play(&[], steps);
    let (_, port) = address.rsplit_once(':').expect("a port");
    let _app = App::start(&[("REDIS_URL", &server.url), ("PORT", port)]);
    browser.play(&[], "until #server ends answers");
}

/// Names of rules come from files, keys from clients, and what writes to Redis may claim that a
/// process has any name: all are text.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn names_are_never_markup() {
    let script = "<script>window.isRun = 1</script>";
    let image = "<img src=x onerror='window.isRun = 1'>";
    let rule = |path| format!("[rules.\"{path}\"]\nmax-count = 1\nwindow = \"1m\"\n");
    let of_tenants = rule("login") + "key = \"header:x-tenant\"\n";
    let file =
        LimitsFile::new([of_tenants, rule(script), rule(image), rule("a\\u202etxt")].concat());
    let server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url), ("LIMITS", file.name())]);
    for tenant in [script, image] {
        (0..4).for_each(|_| _ = login(&app, tenant));
    }
    let url = "/%3Cscript%3Ewindow.isRun%20=%201%3C/script%3E";
    assert_eq!([app.status(url), app.status(url)], [200, 429]);
    let is_text = |browser: &Browser| {
        assert!(browser.run("return window.isRun").is_null());
        let markup = "main script, main img, main b:not([id]) b, main i img";
        assert_eq!(browser.count(markup), 0);
    };
    // Seen for the first time and later.
    for _ in 0..2 {
        let browser = open(&app);
        let steps = r#"
            until #rules has SCRIPT; until #rules has IMAGE; until #rules has a\u{202e}txt
            // What is not written as it is in a key is written as its number.
            until #limited-rows has %3Cscript%3E; until #limited-rows has %3Cimg
            until #limited-rows has SCRIPT
            press reset of all requests together in #limited-rows; #confirm-rule is SCRIPT
            key Escape"#;
        let steps = steps.replace("SCRIPT", script).replace("IMAGE", image);
        browser.play(&[], &steps);
        login(&app, script);
        browser.play(&[], "wait 2000");
        is_text(&browser);
    }
    let browser = open(&app);
    let name = format!("{image}\u{202e}").repeat(200);
    let facts = json!({
        "started_ago_s": 1e300, "name": name, "content_hash": name, "version": u64::MAX,
        "allowed_per_s": u64::MAX, "last_error": {"kind": name, "ago_s": 1e300},
        "warnings": [name],
    });
    let row = json!([name, name, 3, 0, 1e300, 1e300, u64::MAX, name]);
    let text = json!({"facts": facts, "limited": [row]}).to_string();
    let prefix = "{web_app:CurrentLimiter:~fleet}";
    let exists: bool = kit::query(&server, &format!("EXISTS {prefix}:processes"));
    assert!(exists, "the app has another name");
    let process = "<b>zorro</b>";
    // Within the time in which a process has to say something again.
    soon("its row", SOON, || {
        std::thread::sleep(Duration::from_millis(200));
        redis::pipe()
            .set_ex(format!("{prefix}:process:{process}"), &text, 60)
            .zadd(
                format!("{prefix}:processes"),
                process,
                kit::unix_micros() / 1_000,
            )
            .exec(&mut server.connection())
            .expect("is written");
        browser.text("#limited-rows").contains("<img src=x onerror")
    });
    let name = browser.text("#processes article:not(.this) h3");
    assert!(name.starts_with("<img src=x onerror"), "{name}");
    assert!(!name.contains("202e") && name.len() < 100, "{name}");
    browser.play(&[], "fits 400 800; fits 1280 900");
    is_text(&browser);
}

/// The rule "search" for users, of whom some have the plan "pro", with a page.
fn searches(page: fn(Page) -> Page) -> Router {
    let two = r#"max-count = 2, window = "1m""#;
    let limits = of_toml(&format!(
        "rules.search = {{ {two}, plans.pro = {{ {two} }} }}"
    ));
    kit::page::App::of_rules(limits.process_name("<i>web</i>-7"), page).router
}

fn serve(page: fn(Page) -> Page) -> String {
    serve_app(move || searches(page))
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

/// A browser keeps the user and the password of an address, and fetches from no such address.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn an_address_may_have_credentials() {
    let authenticated = async |request: Request, next: Next| {
        // "operator:secret" in base64.
        let wanted = "Basic b3BlcmF0b3I6c2VjcmV0";
        let given = request.headers().get("authorization");
        if request.uri().path() == "/search" || given.is_some_and(|it| it == wanted) {
            return next.run(request).await;
        }
        let asks = [("www-authenticate", "Basic realm=\"limits\"")];
        (StatusCode::UNAUTHORIZED, asks).into_response()
    };
    let layer = axum::middleware::from_fn(authenticated);
    let address = serve_app(move || searches(Page::allow_changes).layer(layer));
    for path in ["/limits/", "/limits"] {
        let browser = Browser::open(&format!("http://operator:secret@{address}{path}"));
        let steps = r##"
            until #server ends answers; search 0 alice x5
            click #limited-rows tr:first-child button[aria-label^=reset]; confirm Reset
            click nav a[href="#now"]"##;
        browser.play(&[&address], steps);
    }
}

/// The table of who is limited: the plan, the denials of the last seconds, and a filter.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn rows_are_filtered_and_have_a_plan() {
    let address = serve(|page| page.allow_changes().show_keys());
    let steps = r#"
        search 0 alice x4; until #limited-rows tr:first-child has alice
        // Nobody has a plan.
        hides th.plan
        search 0 bob, x-plan: pro x12; until #limited-rows tr:first-child [data-label=Plan] is pro
        shows th.plan; until #limited-rows tr:first-child [data-label="Denials/s"] is 2
        within 12 #limited-rows tr:first-child [data-label="Denials/s"] is 0
        #limited-rows tr:nth-child(2) [data-label=Plan] is –
        texts #limited-rows bdi = ["bob","alice"]
        write #filter = ALI; texts #limited-rows bdi = ["alice"]
        write #filter = search b; texts #limited-rows bdi = ["bob"]
        write #filter = pro; texts #limited-rows bdi = ["bob"]
        write #filter = BLANK; texts #limited-rows bdi = ["bob","alice"]
        write #filter = login; texts #limited-rows bdi = []
        #nobody is None of these 2 keys matches the filter.; #limited-count is 2
        write #filter = e
        fits 360 900; fits 400 900; fits 768 900; fits 910 900; fits 1280 900
        // It stays while the page looks again, and the row that is left can be helped.
        write #filter = alice; wait 2000; texts #limited-rows bdi = ["alice"]
        press let through of alice in #limited-rows; click #confirm-do
        until #let-through-rows has alice; write #filter = bob; count #let-through-rows tr = 0
        // "look" asks for the plan of the row.
        press look of bob in #limited-rows; until #key-name ends plan pro"#;
    open_at(&address).play(&[&address], steps);
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
    let browser = open_at(&address);
    for number in 0..80 {
        let plan = [", x-plan: pro", ""][number % 2];
        browser.play(&[&address], &format!("search 0 {}{plan} x3", key(number)));
    }
    let steps = r#"
        until #limited-count is 80; #more-limited is show all 80 keys
        until FIRST [data-label=Used] is 2 of 2
        click FIRST button[aria-label^=block]; write [name=note] = spam, ticket 4711
        confirm Blocked for 1 h; until FIRST [data-label=Until] begins blocked for
        until #blocked-rows has spam, ticket 4711
        click FIRST button[aria-label^=raise]; confirm Raised
        run scrollTo(0, 0) = null; click #blocked-rows button; confirm Block ended
        // A raised key is listed while it is denied.
        search 0 KEY, x-plan: pro x3; until FIRST [data-label=Until] begins × 2 for
        until FIRST [data-label=Used] is 4 of 4; within 18 #said is "#;
    let first = "#limited-rows tr:first-child";
    let steps = steps.replace("FIRST", first).replace("KEY", &key(0));
    browser.play(&[&address], &steps);
    for (width, height) in [(1280, 900), (1024, 900), (400, 900)] {
        browser.resize(width, height);
        browser.run("document.activeElement.blur(); scrollTo(0, 0)");
        browser.picture(&format!("eighty_{width}"));
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
        browser.fits(width, height);
    }
    // The rest is behind a tap.
    let steps = "hides FIRST [data-label=Used]; click FIRST [data-label=Key]; \
        shows FIRST [data-label=Used]";
    browser.play(&[], &steps.replace("FIRST", first));
    assert_eq!(browser.run(BROKEN), json!([]));
    browser.picture("eighty_open");
    let steps = "click FIRST button[aria-label^=reset]; confirm Reset; click FIRST .fold button; \
        hides FIRST [data-label=Used]";
    browser.play(&[], &steps.replace("FIRST", first));
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
    let browser = open(&app);
    for number in 0..12 {
        let long = "x".repeat(40);
        browser.play(&[&app.address], &format!("login 0 {long}-{number} x7"));
    }
    browser.play(&[], "until #limited-count is 12");
    let height = "return document.querySelector('header').offsetHeight";
    for (width, screen) in [(1280, 700), (400, 700), (360, 640)] {
        browser.resize(width, screen);
        browser.play(&[], "within 18 #said is ");
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

/// A storm at a model: who waits, and what it would mean to let everybody through.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn who_waits_is_shown_and_everybody_let_through_after_a_question() {
    let rule = r#"rules.search = { max-count = 1, window = "30s", max-concurrent = 3,
        key = "everyone", fair-by = "header:x-tenant" }"#;
    let address = serve_app(move || {
        let page = |page: Page| page.allow_changes().show_keys();
        let app = kit::page::App::waiting(of_toml(rule), HOUR, page);
        let router = app.router.clone();
        tokio::spawn(async move {
            let markup = "x-tenant: <img src=x onerror='window.isRun = 1'>";
            for (tenant, number) in [("x-tenant: acme", 1_100), ("x-a: b", 1), (markup, 2)] {
                for _ in 0..number {
                    let request = kit::page_steps::asked(&format!("alice, {tenant}"));
                    tokio::spawn(app.router.clone().oneshot(request));
                }
                sleep(Duration::from_secs(2)).await;
            }
        });
        router
    });
    let steps = r#"
        within 12 #waiting-rows has %3Cimg; until #waiting-rows tr:first-child has acme
        until #waiting-rows has without a value; until #limited-rows has all requests together
        count #waiting-rows tr = 3; shoot who_waits 1280 1000; shoot narrow_who_waits 400 900
        fits 400 900; fits 1280 900; press let through of ALL in #limited-rows
        #confirm-title is Let everybody through?
        #confirm-effect has It lifts search-30s (1 in any 30 seconds) and search-concurrent (3 at a
        shoot everybody 1280 900; click #confirm-do; count dialog[open] = 1
        click #confirm-all; confirm Let through for 1 h; within 6 #waiting-rows is ; hides #waiting
        search 0 bob = 200; press end of ALL in #let-through-rows; confirm Limited again
        press look of ALL in #limited-rows; until #key-answer has would be
        click #key-answer [data-do=let-through]; #confirm-title is Let everybody through?
        #confirm-effect has It lifts search-30s; click #confirm-all; confirm Let through for 1 h
        run return window.isRun === undefined = true"#;
    let steps = steps.replace("ALL", "all requests together");
    open_at(&address).play(&[&address], &steps);
}

/// A page that shows no keys helps a key by its hash.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn hidden_keys_are_helped_by_their_hash() {
    let address = serve(Page::allow_changes);
    let browser = open_at(&address);
    let steps = "search 0 alice x5; until #limited-rows tr:first-child begins search#";
    browser.play(&[&address], steps);
    let key = browser.text("#limited-rows tr:first-child bdi");
    let steps = r#"
        click #limited-rows tr:first-child button:last-child; until #key-verdict has denied
        #key-of-row code is KEY; click #key-answer [data-do=reset]; #confirm-key is KEY
        confirm Reset: KEY, rule search.; search 0 alice x2 = 200; search 0 alice = 429
        press let through of KEY in #limited-rows; click #confirm-span label:first-of-type
        confirm Let through for 5 min; search 0 alice = 200
        run return document.body.innerText.includes('alice') = false"#;
    browser.play(&[&address], &steps.replace("KEY", &key));
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_page_that_may_change_nothing_has_no_buttons_for_it() {
    let address = serve(Page::show_keys);
    let steps = r#"
        search 0 alice x5; until #limited-rows has alice
        click #limited-rows button:last-child; until #key-verdict has denied
        texts main button = ["look","Look","5 minutes","1 hour"]
        #rights has .allow_changes()"#;
    open_at(&address).play(&[&address], steps);
}

/// What somebody points at stays where it is while the numbers change.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn the_focus_stays_while_rows_change() {
    let app = App::start(&[]);
    let browser = open(&app);
    let steps = r#"
        login 0 acme x10; until #limited-rows button:last-child is look
        run document.querySelector('#limited-rows button:last-child').focus() = null
        login 0 globex x30; until #limited-rows has GLOBEX
        run return document.activeElement.ariaLabel = "look ACME, rule login"
        #limited-rows tr:first-child has ACME; run document.activeElement.blur() = null
        until #limited-rows tr:first-child has GLOBEX"#;
    browser.play(&[&app.address], steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn it_fits_the_screen() {
    let app = App::start(&[]);
    for path in ["/limits", "/limits/"] {
        let browser = Browser::open(&format!("http://{}{path}", app.address));
        let long = "x".repeat(60);
        let steps = r#"
            login 0 LONG x10; login 0 acme x10; press let through of ACME in #limited-rows
            click #confirm-do; until #let-through-rows has acme"#;
        browser.play(&[&app.address], &steps.replace("LONG", &long));
        for (width, height) in SCREENS {
            browser.fits(width, height);
        }
        browser.play(&[], "");
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
        let steps = r##"
            press let through of 127.0.0.1:header.x-tenant|initech in #limited-rows
            write [name=note] = a demo until noon; confirm Let through
            press block of GLOBEX in #limited-rows
            write [name=note] = spam, ticket 4711; confirm Blocked
            press raise of ACME in #limited-rows
            shoot raise 1280 900; shoot narrow_raise 400 900
            click #confirm-do; within 18 #said is
            shoot web_app 1280 1425; shoot flood 1280 900
            click #limited-rows tr:first-child button:last-child; until #key-verdict not
            run document.querySelector("#fleet").scrollIntoView() = null
            shoot fleet_and_key 1280 800; run scrollTo(0, 0) = null; shoot narrow 400 1600
            run document.querySelector("#key").scrollIntoView() = null
            shoot narrow_key 400 900; run scrollTo(0, 0) = null"##;
        browser.play(&[], steps);
        browser.darken();
        browser.play(&[], "shoot dark_narrow 400 1600; shoot dark 1280 1400");
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
    let browser = Browser::open(&format!("http://{address}/limits/"));
    browser.hide_scroll_bars();
    let steps = r#"
        search 0 globex, x-cost: 10000 = 200; search 0 globex, x-cost: 25 = 429
        search 0 acme, x-cost: 9712 = 200; search 0 acme, x-cost: 400 = 429
        search 0 acme, x-cost: 350 = 429; search 0 acme, x-cost: 300 = 429
        until #limited-rows has globex
        click #limited-rows tr:first-child button:last-child; until #key-name has acme"#;
    browser.play(&[&address], steps);
    let quotas = browser.text("#key-quotas");
    let told = "chat: 10,000 a month, Berlin288 left until 1 ";
    let holds_here = quotas.contains(told) && quotas.contains(" 00:00");
    assert!(holds_here, "{quotas}");
    browser.play(&[], "run scrollTo(0, 0) = null; shoot budget 1280 880");
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

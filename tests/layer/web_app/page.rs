//! The page in Chromium: what a person sees of the counters and of the file with the rules.
//! `bash tests/page.sh` runs these tests.

use super::app::App;
use super::browser::Browser;
use super::*;

/// What the page shows of a rule.
fn card(path: &str, part: &str) -> String {
    format!("article[aria-label=\"{path}\"] {part}")
}

/// A file with rules that an app watches, and a browser that shows its page.
struct Shown {
    folder: TempDir,
    app: App,
    browser: Browser,
}

/// Two readings of the file, 2.25 s, one look of the page a second, and a busy machine.
const MAX_EDIT: Duration = Duration::from_secs(6);

impl Shown {
    fn begin(rules: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("limits.toml");
        std::fs::write(&file, rules).expect("is written");
        let app = App::start(&[("LIMITS", file.to_str().expect("a path of text"))]);
        let browser = Browser::open(&format!("http://{}/", app.address));
        Self {
            folder,
            app,
            browser,
        }
    }

    fn write(&self, rules: &str) {
        std::fs::write(self.file(), rules).expect("is written");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("limits.toml")
    }

    #[track_caller]
    fn wait_for(&self, selector: &str, within: Duration, text: &str) -> Duration {
        self.browser
            .wait_for(selector, within, |it| it.contains(text))
    }
}

fn rule_table(path: &str, max: u64) -> String {
    // A string of JSON is one of TOML.
    let path = serde_json::Value::from(path);
    format!("[rules.{path}]\nmax-count = {max}\nwindow = \"10s\"\n")
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_burst_is_shown_as_denied_within_two_seconds() {
    let shown = Shown::begin(&(rule_table("getId", 5) + &rule_table("other", 5)));
    let (browser, count) = (&shown.browser, |name| {
        card("getId", &format!("[data-count={name}]"))
    });
    browser.wait_for(&count("denied"), MAX_EDIT, |text| text == "0");
    browser.click(&card("getId", "[data-fire=\"20\"]"));
    let took = browser.wait_for(&count("denied"), Duration::from_secs(2), |text| text != "0");
    println!("denied after {took:?}");

    browser.wait_for(&count("denied"), MAX_EDIT, |text| text == "15");
    assert_eq!(browser.text(&count("allowed")), "5");
    assert_eq!(browser.text(&count("units")), "5");
    assert_eq!(browser.text(&count("near")), "2");
    assert_eq!(browser.text(&card("getId", ".quota .denied")), "15 denied");
    assert_eq!(browser.text(&card("other", "[data-count=denied]")), "0");
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn an_edited_file_changes_what_is_shown_without_a_reload_of_the_page() {
    let shown = Shown::begin(&rule_table("getId", 5));
    let (browser, words) = (&shown.browser, card("getId", ".words"));
    shown.wait_for(&words, MAX_EDIT, "5 in any 10 seconds");
    browser.click(&card("getId", "[data-fire=\"20\"]"));
    shown.wait_for(&card("getId", "[data-count=denied]"), MAX_EDIT, "15");
    browser.run("window.isTheSame = true");

    shown.write(&(rule_table("getId", 7) + &rule_table("added", 3)));
    let took = shown.wait_for(&words, MAX_EDIT, "7 in any 10 seconds");
    println!("the new limit is shown after {took:?}");
    shown.wait_for("#version", MAX_EDIT, "version 2");
    assert_eq!(browser.text(&card("getId", "[data-count=denied]")), "15");
    // It is drawn with the next frame.
    browser.wait_for(&card("getId", ".quota output"), MAX_EDIT, |text| {
        text.contains("of 7 left")
    });
    // A rule that is new has a route at once.
    browser.click(&card("added", "[data-fire=\"5\"]"));
    shown.wait_for(&card("added", "[data-count=denied]"), MAX_EDIT, "2");

    shown.write(&rule_table("added", 3));
    shown.wait_for("#notes", MAX_EDIT, "kept, because routes use them: getId.");
    assert!(browser.text(&words).contains("7 in any"));

    shown.write(&(rule_table("getId", 7) + "enabled = false\n"));
    shown.wait_for(&words, MAX_EDIT, "switched off: 7 in any 10 seconds");
    shown.write(&format!("enabled = false\n{}", rule_table("getId", 7)));
    shown.wait_for("#notes", MAX_EDIT, "Limiting is disabled");
    assert_eq!(browser.run("return window.isTheSame"), true);
    browser.check_log();
}

/// The page shows the quotas of the plan that is chosen on it, and what outcomes give back.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn plans_and_outcomes() {
    let shown = Shown::begin(
        r#"
        [rules.getId]
        max-count = 5
        window = "1m"
        [rules.getId.plans.pro]
        max-count = 8
        window = "1m"
        [rules.answer]
        max-count = 5
        window = "1m"
        refund-on = ["2xx"]
        "#,
    );
    let browser = &shown.browser;
    let (words, left) = (card("getId", ".words"), card("getId", ".quota output"));
    shown.wait_for(&words, MAX_EDIT, "5 in any minute");
    browser.click(&card("getId", "[data-fire=\"5\"]"));
    shown.wait_for(&left, MAX_EDIT, "0 of 5 left");
    browser.click(&card("getId", "option[value=\"pro\"]"));
    shown.wait_for(&words, MAX_EDIT, "8 in any minute");
    shown.wait_for(&left, MAX_EDIT, "3 of 8 left");
    let inputs = card("getId", ".inputs");
    shown.wait_for(&inputs, MAX_EDIT, "stands in for authentication");
    browser.click(&card("getId", "[data-fire=\"5\"]"));
    shown.wait_for(&card("getId", "[data-count=denied]"), MAX_EDIT, "2");

    let left = card("answer", ".quota output");
    shown.wait_for(&card("answer", ".words"), MAX_EDIT, "2xx given back");
    browser.click(&card("answer", "[data-fire=\"5\"]"));
    shown.wait_for(&card("answer", "[data-count=allowed]"), MAX_EDIT, "5");
    shown.wait_for(&left, MAX_EDIT, "5 of 5 left");
    browser.click(&card("answer", "option[value=\"401\"]"));
    browser.click(&card("answer", "[data-fire=\"1\"]"));
    shown.wait_for(&left, MAX_EDIT, "4 of 5 left");
    shown.wait_for(&card("answer", ".counts"), MAX_EDIT, "6 allowed");
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_broken_file_is_explained_and_the_old_limit_stays() {
    let shown = Shown::begin(&rule_table("getId", 5));
    let (browser, words) = (&shown.browser, card("getId", ".words"));
    shown.wait_for(&words, MAX_EDIT, "5 in any 10 seconds");

    shown.write("[rules.getId]\nmax-count = many\nwindow = \"10s\"\n");
    let took = shown.wait_for("#notes .bad", MAX_EDIT, "limits.toml:2: ");
    println!("the error is shown after {took:?}");
    assert!(browser.text("#notes").contains("the old rules stay"));
    assert!(browser.text(&words).contains("5 in any 10 seconds"));
    assert!(browser.text("#version").contains("version 1"));
    browser.click(&card("getId", "[data-fire=\"20\"]"));
    shown.wait_for(&card("getId", "[data-count=denied]"), MAX_EDIT, "15");

    std::fs::remove_file(shown.file()).expect("is removed");
    shown.wait_for("#notes .bad", MAX_EDIT, "No such file");
    shown.write(&rule_table("getId", 6));
    shown.wait_for(&words, MAX_EDIT, "6 in any 10 seconds");
    assert_eq!(browser.text("#notes"), "");
    browser.check_log();
}

/// Whatever a file with rules says is shown as text.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn text_from_the_file_is_never_markup() {
    let paths = [
        "<script>window.isRun = 1</script>",
        "<img src=x onerror=\"window.isRun = 1\">",
        "'\"`${1}</h2><b>&amp;",
        "Zürich/東京/\u{202e}txt",
        "__proto__",
        "constructor",
        "a\nb\\c",
    ];
    let shown = Shown::begin(&paths.map(|path| rule_table(path, 1)).concat());
    let browser = &shown.browser;
    browser.wait_for("#cards", MAX_EDIT, |text| text.contains("__proto__"));
    let headings = browser.run(
        "return [...document.querySelectorAll('article')].map((it) => \
           [it.getAttribute('aria-label'), it.querySelector('h2').textContent])",
    );
    let mut wanted = paths.map(|path| serde_json::json!([path, format!("/{path}")]));
    wanted.sort_by_key(|it| it[0].as_str().map(str::to_owned));
    assert_eq!(headings, serde_json::Value::from(wanted.to_vec()));

    browser.run("document.querySelectorAll('[data-fire=\"5\"]').forEach((it) => it.click())");
    for number in 1..=paths.len() {
        let count = format!("article:nth-child({number}) [data-count=denied]");
        browser.wait_for(&count, MAX_EDIT, |text| text == "4");
    }
    // The message of an error holds text of the file, too.
    shown.write("[rules.\"<script>window.isRun = 1</script>\"]\nmax-count = -1\n");
    shown.wait_for("#notes .bad", MAX_EDIT, "<script>window.isRun = 1</script>");
    assert!(browser.run("return window.isRun").is_null());
    let found = browser.run("return document.querySelectorAll('main script, main b b').length");
    assert_eq!(found, 0);
    browser.check_log();
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_server_that_is_gone_is_said_and_its_successor_is_shown() {
    let shown = Shown::begin(&rule_table("getId", 5));
    let Shown {
        folder,
        app,
        browser,
    } = shown;
    (0..9).for_each(|_| drop(app.get("/getId")));
    let denied = card("getId", "[data-count=denied]");
    browser.wait_for(&denied, Duration::from_secs(3), |text| text == "4");
    let (_, port) = app.address.rsplit_once(':').expect("a port");
    let port = port.to_owned();
    app.stop("-TERM");
    browser.wait_for("#server", MAX_EDIT, |text| text == "no answer");

    let file = folder.path().join("limits.toml");
    std::fs::write(&file, rule_table("getId", 8)).expect("is written");
    let file = file.to_str().expect("a path of text");
    let _app = App::start(&[("LIMITS", file), ("PORT", &port)]);
    browser.wait_for("#server", MAX_EDIT, |text| text == "server answers");
    browser.wait_for(&denied, MAX_EDIT, |text| text == "0");
    assert!(browser.text(&card("getId", ".words")).contains("8 in any"));
    browser.check_log();
}

/// The three things that the page lets a visitor try, with a Redis of the app's own.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn three_things_to_try() {
    let app = App::start(&[("REDIS_URL", "")]);
    let browser = Browser::open(&format!("http://{}/", app.address));
    browser.wait_for("#try-redis-now", MAX_EDIT, |text| text.contains("runs"));
    browser.sees("#try-limit", "5 in any 10 seconds");
    browser.click("#try-send");
    // On a busy machine Redis may miss its time-out, and the process then counts by itself.
    browser.wait_for("#try-counts", MAX_EDIT, |text| {
        let numbers = text.split(|it: char| !it.is_ascii_digit());
        let numbers = numbers.filter_map(|it| it.parse::<u32>().ok());
        text.contains("denied") && numbers.sum::<u32>() == 20
    });
    let fields = browser.text("#try-fields");
    for field in [
        "429",
        "RateLimit: \"getId\";r=0",
        "RateLimit-Policy",
        "Retry-After",
    ] {
        assert!(fields.contains(field), "{fields}");
    }
    browser.click("#try-process");
    browser.wait_for("#try-second", MAX_EDIT, |text| text.contains("127.0.0.1:"));
    browser.click("#try-redis");
    browser.wait_for("#try-redis-now", MAX_EDIT, |text| {
        text.contains("is stopped")
    });
    browser.wait_for("#try-redis", MAX_EDIT, |text| text == "Start Redis");
    browser.click("#try-redis");
    browser.wait_for("#try-redis-now", MAX_EDIT, |text| text.contains("runs"));
    assert_eq!(browser.text("#try-said"), "");
    browser.check_log();
}

/// The pictures of this page, written when `tests/page.sh --screenshots FOLDER` asks for them.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn screenshots() {
    let Some(folder) = std::env::var_os("TIDEGATE_SCREENSHOTS") else {
        return;
    };
    let environment = [("REDIS_URL", ""), ("LIMITS", "examples/limits.toml")];
    let app = App::start(&environment);
    let browser = Browser::open(&format!("http://{}/", app.address));
    browser.hide_scroll_bars();
    for (name, width, height) in [("try", 1280, 390), ("narrow_try", 400, 720)] {
        browser.resize(width, height);
        browser.wait_for("#try-redis-now", MAX_EDIT, |text| text.contains("runs"));
        browser.click("#try-send");
        browser.wait_for("#try-counts", MAX_EDIT, |text| text.contains("denied"));
        if width == 1280 {
            browser.click("#try-process");
        }
        browser.wait_for("#try-second", MAX_EDIT, |text| text.contains("127.0.0.1:"));
        std::thread::sleep(Duration::from_secs(12));
        browser.run("document.activeElement.blur()");
        let file = PathBuf::from(&folder).join(format!("{name}.png.base64"));
        std::fs::write(file, browser.screenshot()).expect("is written");
    }
}

/// Nothing is cut off, on a phone and on a desk; and nothing is lost in the dark.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn it_fits_the_screen() {
    let shown = Shown::begin(include_str!("../../../examples/limits.toml"));
    let browser = &shown.browser;
    for (width, height) in [
        (360, 740),
        (400, 800),
        (768, 1024),
        (1280, 900),
        (1920, 1080),
    ] {
        browser.resize(width, height);
        browser.wait_for("#version", MAX_EDIT, |text| text.contains("version 1"));
        browser.click(&card("getId", "[data-fire=\"5\"]"));
        let overflow = browser.run(
            "const limit = document.documentElement.clientWidth; \
             return [...document.querySelectorAll('body *')] \
               .filter((it) => it.getBoundingClientRect().right > limit + 1 \
                 || it.matches('dt, dd') && it.scrollWidth > it.clientWidth) \
               .map((it) => it.outerHTML.slice(0, 100))",
        );
        assert_eq!(overflow, serde_json::json!([]), "{width}x{height}");
    }
    browser.check_log();
}

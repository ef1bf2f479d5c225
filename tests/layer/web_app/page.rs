//! The page in Chromium: what a person sees of the counters and of the file with the rules.
//! `bash tests/page.sh` runs these tests.

use super::app::App;
use super::browser::{Browser, SOON};
use super::*;

/// A file with rules that an app watches, and a browser that shows its page.
struct Shown {
    file: LimitsFile,
    app: App,
    browser: Browser,
}

impl Shown {
    fn begin(rules: &str) -> Self {
        let file = LimitsFile::new(rules);
        let app = App::start(&[("LIMITS", file.name())]);
        let browser = Browser::open(&format!("http://{}/", app.address));
        Self { file, app, browser }
    }

    #[track_caller]
    fn play(&self, steps: &str) {
        self.browser.play(&[], steps);
    }
}

fn rule_table(path: &str, max: u64) -> String {
    // A string of JSON is one of TOML.
    let path = Value::from(path);
    format!("[rules.{path}]\nmax-count = {max}\nwindow = \"10s\"\n")
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_burst_is_shown_as_denied_within_two_seconds() {
    let shown = Shown::begin(&(rule_table("getId", 5) + &rule_table("other", 5)));
    let steps = r#"
        until @getId [data-count=denied] is 0; click @getId [data-fire="20"]
        within 2 @getId [data-count=denied] not 0
        until @getId [data-count=denied] is 15; @getId [data-count=allowed] is 5
        @getId [data-count=units] is 5; @getId [data-count=near] is 2
        @getId .quota .denied is 15 denied; @other [data-count=denied] is 0"#;
    shown.play(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn an_edited_file_changes_what_is_shown_without_a_reload_of_the_page() {
    let shown = Shown::begin(&rule_table("getId", 5));
    let steps = r#"
        until @getId .words has 5 in any 10 seconds; click @getId [data-fire="20"]
        until @getId [data-count=denied] has 15; run window.isTheSame = true = null"#;
    shown.play(steps);

    shown
        .file
        .write(rule_table("getId", 7) + &rule_table("added", 3));
    let steps = r#"
        within 6 @getId .words has 7 in any 10 seconds
        until #version has version 2; @getId [data-count=denied] is 15
        // It is drawn with the next frame.
        until @getId .quota output has of 7 left
        // A rule that is new has a route at once.
        click @added [data-fire="5"]; until @added [data-count=denied] has 2"#;
    shown.play(steps);

    shown.file.write(rule_table("added", 3));
    let steps = r#"
        until #notes has kept, because routes use them: getId.; @getId .words has 7 in any"#;
    shown.play(steps);
    shown
        .file
        .write(rule_table("getId", 7) + "enabled = false\n");
    shown.play("until @getId .words has switched off: 7 in any 10 seconds");
    shown
        .file
        .write(format!("enabled = false\n{}", rule_table("getId", 7)));
    shown.play("until #notes has Limiting is disabled; run return window.isTheSame = true");
}

/// The page shows the quotas of the plan that is chosen on it, and what outcomes give back.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn plans_and_outcomes() {
    let rules = r#"
        [rules.getId]
        max-count = 5
        window = "1m"
        plans.pro = { max-count = 8, window = "1m" }
        [rules.answer]
        max-count = 5
        window = "1m"
        refund-on = ["2xx"]"#;
    let steps = r#"
        until @getId .words has 5 in any minute; click @getId [data-fire="5"]
        until @getId .quota output has 0 of 5 left; click @getId option[value="pro"]
        until @getId .words has 8 in any minute; until @getId .quota output has 3 of 8 left
        until @getId .inputs has stands in for authentication
        click @getId [data-fire="5"]; until @getId [data-count=denied] has 2

        until @answer .words has 2xx given back; click @answer [data-fire="5"]
        until @answer [data-count=allowed] has 5; until @answer .quota output has 5 of 5 left
        click @answer option[value="401"]; click @answer [data-fire="1"]
        until @answer .quota output has 4 of 5 left; until @answer .counts has 6 allowed"#;
    Shown::begin(rules).play(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_broken_file_is_explained_and_the_old_limit_stays() {
    let shown = Shown::begin(&rule_table("getId", 5));
    shown.play("until @getId .words has 5 in any 10 seconds");
    shown
        .file
        .write("[rules.getId]\nmax-count = many\nwindow = \"10s\"\n");
    let steps = r#"
        within 6 #notes .bad has limits.toml:2: ; #notes has the old rules stay
        @getId .words has 5 in any 10 seconds; #version has version 1
        click @getId [data-fire="20"]; until @getId [data-count=denied] has 15"#;
    shown.play(steps);
    std::fs::remove_file(&shown.file.path).expect("is removed");
    shown.play("until #notes .bad has No such file");
    shown.file.write(rule_table("getId", 6));
    shown.play("until @getId .words has 6 in any 10 seconds; #notes is ");
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
    browser.wait_for("#cards", SOON, |text| text.contains("__proto__"));
    let headings = browser.run(
        "return [...document.querySelectorAll('article')].map((it) => \
           [it.getAttribute('aria-label'), it.querySelector('h2').textContent])",
    );
    let mut wanted = paths.map(|path| json!([path, format!("/{path}")]));
    wanted.sort_by_key(|it| it[0].as_str().map(str::to_owned));
    assert_eq!(headings, Value::from(wanted.to_vec()));

    browser.run("document.querySelectorAll('[data-fire=\"5\"]').forEach((it) => it.click())");
    for number in 1..=paths.len() {
        let count = format!("article:nth-child({number}) [data-count=denied]");
        browser.wait_for(&count, SOON, |text| text == "4");
    }
    // The message of an error holds text of the file, too.
    shown
        .file
        .write("[rules.\"<script>window.isRun = 1</script>\"]\nmax-count = -1\n");
    let steps = r#"
        until #notes .bad has <script>window.isRun = 1</script>; run return window.isRun = null
        count main script, main b b = 0"#;
    shown.play(steps);
}

#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn a_server_that_is_gone_is_said_and_its_successor_is_shown() {
    let shown = Shown::begin(&rule_table("getId", 5));
    let Shown { file, app, browser } = shown;
    (0..9).for_each(|_| drop(app.get("/getId")));
    browser.play(&[], "within 3 @getId [data-count=denied] is 4");
    let (_, port) = app.address.rsplit_once(':').expect("a port");
    let port = port.to_owned();
    app.stop("-TERM");
    browser.play(&[], "until #server is no answer");
    file.write(rule_table("getId", 8));
    let _app = App::start(&[("LIMITS", file.name()), ("PORT", &port)]);
    let steps = r#"
        until #server is server answers; until @getId [data-count=denied] is 0
        @getId .words has 8 in any"#;
    browser.play(&[], steps);
}

/// The three things that the page lets a visitor try, with a Redis of the app's own.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn three_things_to_try() {
    let app = App::start(&[("REDIS_URL", "")]);
    let browser = Browser::open(&format!("http://{}/", app.address));
    let steps = r#"
        until #try-redis-now has runs; until #try-limit has 5 in any 10 seconds; click #try-send"#;
    browser.play(&[], steps);
    // On a busy machine Redis may miss its time-out, and the process then counts by itself.
    browser.wait_for("#try-counts", SOON, |text| {
        let numbers = text.split(|it: char| !it.is_ascii_digit());
        let numbers = numbers.filter_map(|it| it.parse::<u32>().ok());
        text.contains("denied") && numbers.sum::<u32>() == 20
    });
    let steps = r#"
        #try-fields has 429; #try-fields has RateLimit: "getId";r=0
        #try-fields has RateLimit-Policy; #try-fields has Retry-After
        click #try-process; until #try-second has 127.0.0.1:; click #try-redis
        until #try-redis-now has is stopped; until #try-redis is Start Redis; click #try-redis
        until #try-redis-now has runs; #try-said is "#;
    browser.play(&[], steps);
}

/// The pictures of this page, written when `tests/page.sh --screenshots FOLDER` asks for them.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn screenshots() {
    if std::env::var_os("TIDEGATE_SCREENSHOTS").is_none() {
        return;
    }
    let environment = [("REDIS_URL", ""), ("LIMITS", "examples/limits.toml")];
    let app = App::start(&environment);
    let browser = Browser::open(&format!("http://{}/", app.address));
    browser.hide_scroll_bars();
    for (name, width, height) in [("try", 1280, 390), ("narrow_try", 400, 720)] {
        browser.resize(width, height);
        let steps = "until #try-redis-now has runs; click #try-send; until #try-counts has denied";
        browser.play(&[], steps);
        if width == 1280 {
            browser.click("#try-process");
        }
        browser.play(&[], "until #try-second has 127.0.0.1:");
        std::thread::sleep(Duration::from_secs(12));
        browser.run("document.activeElement.blur()");
        browser.picture(name);
    }
}

/// Nothing is cut off, on a phone and on a desk; and nothing is lost in the dark.
#[test]
#[ignore = "needs Chromium: tests/page.sh"]
fn it_fits_the_screen() {
    let shown = Shown::begin(include_str!("../../../examples/limits.toml"));
    let browser = &shown.browser;
    for (width, height) in SCREENS {
        browser.resize(width, height);
        shown.play("until #version has version 1; click @getId [data-fire=\"5\"]");
        browser.fits(width, height);
    }
    browser.check_log();
}

//! Chromium without a window, driven by the few WebDriver commands that the tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::app::{exchange, status_of};
use crate::*;

/// Keys as the page of the limits shows them.
const ACME: &str = "127.0.0.1:header.x-tenant|acme";
const GLOBEX: &str = "127.0.0.1:header.x-tenant|globex";
/// Two readings of a file, 2.25 s, or one of a list that processes share; one look of the page a
/// second; and a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(6);

/// How long a command may take.
const MAX_COMMAND: Duration = Duration::from_secs(30);

/// The name of an element's id in WebDriver's documents.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page. It is closed when it is dropped.
pub(super) struct Browser {
    driver: Child,
    address: String,
    session: String,
    /// What Chromium leaves behind is in here.
    _folder: TempDir,
}

impl Browser {
    /// Opens this page.
    pub(super) fn open(url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut driver = Command::new("chromedriver")
            .env("TMPDIR", folder.path())
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts: tests/page.sh installs it");
        let stdout = BufReader::new(driver.stdout.take().expect("is piped"));
        let mut browser = Self {
            driver,
            address: String::new(),
            session: String::new(),
            _folder: folder,
        };
        let mut lines = stdout.lines().map(|line| line.expect("text"));
        let port = lines.find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        browser.address = format!("127.0.0.1:{}", port.expect("a port"));
        browser.session = browser.begin();
        browser.post("url", json!({ "url": url }));
        browser
    }

    fn begin(&self) -> String {
        // The sandbox of Chromium does not work for root, nor in most containers.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--window-size=1280,900",
        ];
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let capabilities = json!({ "capabilities": { "alwaysMatch": wanted } });
        let session = self.command("POST", "/session", &capabilities);
        session["sessionId"].as_str().expect("a session").to_owned()
    }

    /// Plays steps, which `; ` and ends of lines divide; what begins with `//` is a comment. At the
    /// end the log has to be without a mistake.
    ///
    /// - `#said is Reset`: the text of the element with this selector; also `not`, `has`, `lacks`,
    ///   `begins` and `ends`; `A or B` is one of both. `until #said is Reset` waits for it, and
    ///   `within 2 #said is Reset` for two seconds. `@login .words` is in what has this name.
    /// - `count tr = 2`: so many elements have this selector. `texts h2 = ["a"]`: of those that are
    ///   seen. `shows th`, `hides th`: it is seen, or not. `run return 1 + 1 = 2`. `fits 400 800`:
    ///   nothing is cut off on a screen of this size. `shoot flood 400 800`: a picture of it.
    /// - `click #more`; `press raise of ACME in #rows`: the button in the row of this key;
    ///   `write #note = why`, `write #note = BLANK`: in place of what is there; `key Escape`;
    ///   `confirm Reset`: does what a dialog asks about, and waits until the page says this;
    ///   `look-up ACME`. `wait 2000`: milliseconds.
    /// - `login 1 acme x7`: requests of a tenant to the second of these addresses; `= 429` is the
    ///   status of all of them. `search 0 bob`: of a user, with further fields as in `bob, a: b`.
    ///   `soon login 1 acme = 200` waits for it, `obeys login 1 acme = 200` for two seconds.
    #[track_caller]
    pub(super) fn play(&self, addresses: &[&str], steps: &str) {
        let lines = steps.lines().map(str::trim);
        let lines = lines.filter(|line| !line.starts_with("//"));
        for step in lines.flat_map(|line| line.split("; ")) {
            let step = step.trim_end_matches(';').replace("ACME", ACME);
            let step = step.replace("GLOBEX", GLOBEX);
            let (verb, rest) = step.split_once(' ').unwrap_or((&step, ""));
            let (what, expected) = rest.rsplit_once(" = ").unwrap_or((rest, ""));
            let value = |json: &str| serde_json::from_str::<Value>(json).expect("JSON");
            match verb {
                "" => {}
                "click" => self.click(&selector(rest)),
                "press" => {
                    let (action, rest) = rest.split_once(" of ").expect("of a key");
                    let (key, table) = rest.split_once(" in ").expect("in a table");
                    self.run("scrollTo(0, 0)");
                    self.click(&button(table, action, key));
                }
                "write" => {
                    let selector = Value::from(what);
                    self.run(&format!("document.querySelector({selector}).value = ''"));
                    self.write(what, &expected.replace("BLANK", " "));
                }
                "key" => self.press(match rest {
                    "Tab" => '\u{e004}',
                    "Enter" => '\u{e007}',
                    _ => '\u{e00c}',
                }),
                "confirm" => {
                    self.click("#confirm-do");
                    self.wait_until(&format!("#said begins {rest}"), SOON);
                }
                "look-up" => {
                    self.run("document.querySelector('#key-form').reset()");
                    self.write("[name=rule]", "login");
                    self.write("[name=key]", rest);
                    self.click("#key-form .main");
                }
                "count" => assert_eq!(self.count(what).to_string(), expected, "{step}"),
                "texts" => {
                    let all = format!("[...document.querySelectorAll({})]", json!(what));
                    let seen = "filter((it) => it.checkVisibility()).map((it) => it.textContent)";
                    let texts = self.run(&format!("return {all}.{seen}"));
                    assert_eq!(texts, value(expected), "{step}");
                }
                "shows" | "hides" => assert_eq!(self.shows(rest), verb == "shows", "{step}"),
                "run" => assert_eq!(self.run(what), value(expected), "{step}"),
                "fits" => {
                    let (width, height) = rest.split_once(' ').expect("two numbers");
                    let [width, height] = [width, height].map(|it| it.parse().expect("a number"));
                    self.fits(width, height);
                }
                "shoot" => {
                    let [name, width, height] = words(rest)[..] else {
                        panic!("{step}");
                    };
                    let [width, height] = [width, height].map(|it| it.parse().expect("a number"));
                    self.resize(width, height);
                    self.run("document.activeElement.blur()");
                    std::thread::sleep(Duration::from_secs(2));
                    self.picture(name);
                }
                "wait" => std::thread::sleep(millis(rest.parse().expect("milliseconds"))),
                "until" => _ = self.wait_until(rest, SOON),
                "within" => {
                    let (seconds, check) = rest.split_once(' ').expect("what is awaited");
                    let most = Duration::from_secs(seconds.parse().expect("a number"));
                    println!("{check}: after {:?}", self.wait_until(check, most));
                }
                "login" | "search" => {
                    let times = what.rsplit_once(" x");
                    let times = times.filter(|it| it.1.parse::<usize>().is_ok());
                    let (what, times) = times.unwrap_or((what, "1"));
                    for _ in 0..times.parse().expect("a number") {
                        let status = ask(addresses, verb, what).to_string();
                        assert!(
                            expected.is_empty() || status == expected,
                            "{step}: {status}"
                        );
                    }
                }
                "soon" | "obeys" => {
                    let (path, what) = what.split_once(' ').expect("a request");
                    let is_so = || ask(addresses, path, what).to_string() == expected;
                    let most = if verb == "soon" {
                        SOON
                    } else {
                        Duration::from_secs(2)
                    };
                    super::soon(&step, most, is_so);
                }
                _ => _ = self.wait_until(&step, Duration::ZERO),
            }
        }
        self.check_log();
    }

    /// Waits until it is so, at most so long. Returns how long that took.
    #[track_caller]
    fn wait_until(&self, check: &str, most: Duration) -> Duration {
        let line = format!("{check} ");
        let hows = ["is", "not", "has", "lacks", "begins", "ends"].into_iter();
        let hows = hows.filter_map(|how| {
            let (element, wanted) = line.split_once(&format!(" {how} "))?;
            Some((element, how, wanted.trim_end()))
        });
        let first = hows.min_by_key(|it| it.0.len());
        let (element, how, wanted) = first.unwrap_or_else(|| panic!("no step: {check}"));
        let is_so = |text: &str, wanted: &str| match how {
            "is" => text == wanted,
            "not" => text != wanted,
            "has" => text.contains(wanted),
            "lacks" => !text.contains(wanted),
            "begins" => text.starts_with(wanted),
            _ => text.ends_with(wanted),
        };
        self.wait_for(&selector(element), most, |text| {
            wanted.split(" or ").any(|wanted| is_so(text, wanted))
        })
    }

    /// What this function body returns in the page.
    pub(super) fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] }))
    }

    /// The text of the element with this selector; empty while there is none.
    pub(super) fn text(&self, selector: &str) -> String {
        let selector = Value::from(selector);
        let text = self.run(&format!(
            "return document.querySelector({selector})?.textContent ?? ''"
        ));
        text.as_str().expect("text").to_owned()
    }

    /// Clicks as a person does: what is covered or not shown cannot be clicked. Waits until there
    /// is such an element.
    #[track_caller]
    pub(super) fn click(&self, selector: &str) {
        self.wait_for(selector, Duration::from_secs(5), |text| !text.is_empty());
        let id = self.find(selector);
        self.post(&format!("element/{id}/click"), json!({}));
    }

    /// Types this into an empty field.
    #[track_caller]
    pub(super) fn write(&self, selector: &str, text: &str) {
        let id = self.find(selector);
        self.post(&format!("element/{id}/value"), json!({ "text": text }));
    }

    /// Presses a key of the keyboard where the focus is.
    pub(super) fn press(&self, key: char) {
        let actions = ["keyDown", "keyUp"].map(|it| json!({ "type": it, "value": key }));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("actions", json!({ "actions": [keyboard] }));
    }

    fn find(&self, selector: &str) -> String {
        let found = json!({ "using": "css selector", "value": selector });
        let element = self.post("element", found);
        element[ELEMENT].as_str().expect("an element").to_owned()
    }

    /// How many elements there are with this selector.
    pub(super) fn count(&self, selector: &str) -> u64 {
        let selector = Value::from(selector);
        let count = self.run(&format!(
            "return document.querySelectorAll({selector}).length"
        ));
        count.as_u64().expect("a number")
    }

    /// Waits until the element's text is as wanted. Returns how long that took.
    #[track_caller]
    pub(super) fn wait_for(
        &self,
        selector: &str,
        within: Duration,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Duration {
        let started = Instant::now();
        loop {
            let text = self.text(selector);
            if is_wanted(&text) {
                return started.elapsed();
            }
            assert!(started.elapsed() < within, "{selector} still is {text:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The size of the page that is seen.
    pub(super) fn resize(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
    }

    /// Nothing is cut off on a screen of this size.
    #[track_caller]
    pub(super) fn fits(&self, width: u32, height: u32) {
        self.resize(width, height);
        let overflow = self.run(
            "const limit = document.documentElement.clientWidth; \
             return [...document.querySelectorAll('body *')] \
               .filter((it) => it.getBoundingClientRect().right > limit + 1 \
                 || it.matches('dt, dd') && it.scrollWidth > it.clientWidth) \
               .filter((it) => !it.closest('thead')).map((it) => it.outerHTML.slice(0, 100))",
        );
        assert_eq!(overflow, json!([]), "{width}x{height}");
        let whole = self.run("return document.documentElement.scrollWidth");
        assert!(whole.as_u64() <= Some(width.into()), "{width}: {whole}");
    }

    /// Whether the element with this selector is seen.
    pub(super) fn shows(&self, selector: &str) -> bool {
        let selector = Value::from(selector);
        let query = format!("document.querySelector({selector}).checkVisibility()");
        self.run(&format!("return {query}")) == true
    }

    /// For pictures.
    pub(super) fn hide_scroll_bars(&self) {
        self.devtools("Emulation.setScrollbarsHidden", json!({ "hidden": true }));
    }

    /// Prefers dark pages from now on.
    pub(super) fn darken(&self) {
        let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": dark }));
    }

    fn devtools(&self, command: &str, parameters: Value) {
        let command = json!({ "cmd": command, "params": parameters });
        self.post("goog/cdp/execute", command);
    }

    /// Keeps what is seen, a PNG in base64, if somebody asked for pictures.
    pub(super) fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("TIDEGATE_SCREENSHOTS") {
            let path = format!("/session/{}/screenshot", self.session);
            let picture = self.command("GET", &path, &Value::Null);
            let file = PathBuf::from(folder).join(format!("{name}.png.base64"));
            std::fs::write(file, picture.as_str().expect("text")).expect("is written");
        }
    }

    /// Fails if a script failed, wrote a warning, or was refused. A response with an error status
    /// is in the log, too, and no mistake: a denied request has one.
    #[track_caller]
    pub(super) fn check_log(&self) {
        let log = self.post("se/log", json!({ "type": "browser" }));
        let entries = log.as_array().expect("a list").iter();
        let mistakes = entries.filter(|entry| {
            entry["source"] != "network"
                && (entry["level"] == "SEVERE" || entry["level"] == "WARNING")
        });
        let mistakes: Vec<_> = mistakes.collect();
        assert!(mistakes.is_empty(), "{mistakes:#?}");
    }

    fn post(&self, command: &str, body: Value) -> Value {
        let path = format!("/session/{}/{command}", self.session);
        self.command("POST", &path, &body)
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = ask_driver(&self.address, method, path, body);
        let mut answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let value = answer["value"].take();
        assert!(value["error"].is_null(), "{method} {path}: {value:#}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser with the session.
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let _ = ask_driver(&self.address, "DELETE", &path, &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// `@login .words` is in the article of this name.
fn selector(text: &str) -> String {
    let named = text.strip_prefix('@').and_then(|it| it.split_once(' '));
    named.map_or(text.to_owned(), |(name, part)| {
        format!("[aria-label=\"{name}\"] {part}")
    })
}

/// A button in the row of a key. What asks before it does something has dots behind its name.
pub(super) fn button(table: &str, action: &str, key: &str) -> String {
    let dots = if action == "look" { "" } else { "…" };
    format!("{table} button[aria-label^=\"{action}{dots} {key}\"]")
}

/// The status of a tenant's or a user's request, as in `0 acme` and `0 bob, x-plan: pro`.
fn ask(addresses: &[&str], path: &str, what: &str) -> u16 {
    let (number, who) = what.split_once(' ').expect("a number and a name");
    let name = if path == "login" {
        "x-tenant"
    } else {
        "x-user"
    };
    let fields = format!("host: test\r\n{name}: {}\r\n", who.replace(", ", "\r\n"));
    let address = addresses[number.parse::<usize>().expect("a number")];
    status_of(&exchange(address, "GET", &format!("/{path}"), &fields))
}

/// One request to the driver, on a connection of its own.
fn ask_driver(
    address: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, Box<dyn std::error::Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(MAX_COMMAND))?;
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

//! Chromium without a window, driven by the few WebDriver commands that the tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::*;

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

    /// Waits a few seconds until the element's text has this in it.
    #[track_caller]
    pub(super) fn sees(&self, selector: &str, text: &str) {
        self.wait_for(selector, Duration::from_secs(6), |it| it.contains(text));
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

    /// A picture of what is seen: a PNG in base64.
    pub(super) fn screenshot(&self) -> String {
        let path = format!("/session/{}/screenshot", self.session);
        let picture = self.command("GET", &path, &Value::Null);
        picture.as_str().expect("text").to_owned()
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
        let answer = exchange(&self.address, method, path, body);
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
            let _ = exchange(&self.address, "DELETE", &path, &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// One request to the driver, on a connection of its own.
fn exchange(
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

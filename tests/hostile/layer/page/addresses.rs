//! Wherever the page is mounted, and whatever is asked for, it answers as HTTP says.

use super::*;

/// Where a browser that shows this address looks for `link`, as RFC 3986 says.
fn resolved(address: &str, base: &str, link: &str) -> String {
    let folder = |path: &str| path[..path.rfind('/').expect("a slash") + 1].to_owned();
    let mut path = folder(address);
    for part in [base, link] {
        let part = part.strip_prefix("./").expect("it is relative");
        path = format!("{path}{part}");
        if part == base.trim_start_matches("./") {
            path = folder(&path);
        }
    }
    path
}

fn base(index: &str) -> &str {
    let (_, rest) = index.split_once("<base href=\"").expect("a base");
    rest.split_once('"').expect("it ends").0
}

#[tokio::test(start_paused = true)]
async fn it_answers_with_and_without_a_slash_wherever_it_is() {
    let page = Limits::new([hourly("search", 2)]).page();
    let inner = Router::new().nest_service("/ops/limits", page.clone().router());
    let app = Router::new()
        .nest_service("/limits", page.clone().router())
        .nest("/deeper/still", inner)
        .nest_service("/of/{tenant}/limits", page.clone().router())
        .nest_service("/other", page.router());
    let status = async |path: &str| send(&app, empty(Method::GET, path)).await.status;
    for at in words("/limits /deeper/still/ops/limits /of/acme/limits /other") {
        for address in [at.to_owned(), format!("{at}/")] {
            let answer = send(&app, empty(Method::GET, &address)).await;
            assert_eq!(answer.status, 200, "{address}");
            assert!(answer.field("content-type").starts_with("text/html"));
            let base = base(&answer.text);
            let api = resolved(&address, base, "./api/now");
            assert_eq!(api, format!("{at}/api/now"), "{address} {base}");
            assert_eq!(status(&api).await, 200);
            let texts = answer.text.split(['"', '\'']);
            for link in texts.filter(|it| it.ends_with(".css") || it.ends_with(".js")) {
                let link = resolved(&address, base, &format!("./{link}"));
                assert_eq!(status(&link).await, 200, "{link}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn methods_and_unknown_paths_are_answered_as_http_says() {
    let app = App::new(Page::allow_changes);
    let paths = words("/ /style.css /api/now /api/hour /api/limited /api/fleet");
    for path in paths.into_iter().chain([""]) {
        let path = format!("/limits{path}");
        let whole = app.get(&path).await;
        assert_eq!(whole.status, 200, "{path}");
        let head = app.send(empty(Method::HEAD, &path)).await;
        assert_eq!((head.status, &*head.text), (200, ""), "{path}");
        assert_eq!(head.field("content-type"), whole.field("content-type"));
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let answer = app.send(empty(method.clone(), &path)).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            let allowed = answer.field("allow");
            assert!(allowed.contains("GET"), "{method} {path} {answer:?}");
        }
    }
    for path in ["key", "reset", "let-through"] {
        let answer = app.get_view(path).await;
        let seen = (answer.status, answer.field("allow"));
        assert_eq!(seen, (405, "POST"), "{path}");
    }
    for path in words(
        "/api /api/ /api/nothing /api/now/ /api/now/x /api/NOW /../style.css /%2e%2e/Cargo.toml
        /..%2f..%2fetc%2fpasswd /%00 /%ff%fe /index.html%00.js /api/now%0d%0ax:y /assets/../mod.rs
        /page.rs /mod.rs",
    ) {
        let answer = app.get(&format!("/limits{path}")).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    assert_eq!(app.get("/limitsapi/now").await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_is_not_sent_again() {
    let app = App::new(|page| page);
    sleep(millis(1_500)).await;
    app.use_up("alice").await;
    sleep(Duration::from_secs(2)).await;
    let ask = async |view: &str, known: &str| {
        let mut request = empty(Method::GET, &format!("/limits/api/{view}"));
        let value = known.parse().expect("a value");
        request.headers_mut().insert("if-none-match", value);
        app.send(request).await
    };
    for view in GET_VIEWS {
        let first = app.get_view(view).await;
        let tag = first.field("etag").to_owned();
        assert!(tag.len() > 2, "{view}: {first:?}");
        for (known, status) in [
            (tag.clone(), 304),
            (format!("\"other\", {tag}"), 304),
            (format!("W/{}", tag.trim_start_matches("W/")), 304),
            ("\"other\"".to_owned(), 200),
            (String::new(), 200),
        ] {
            let answer = ask(view, &known).await;
            assert_eq!(answer.status, status, "{view} {known}");
            assert_eq!(answer.text.is_empty(), status == 304, "{view} {known}");
            if status == 304 {
                assert_eq!(answer.field("etag"), tag, "{view}");
            }
        }
    }
    // What is new is told, whatever was known.
    let before = app.get_view("limited").await;
    sleep(Duration::from_secs(2)).await;
    app.use_up("bob").await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(ask("limited", before.field("etag")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn after_may_be_anything() {
    let app = App::new(|page| page);
    sleep(millis(4_500)).await;
    let all = app.view("now").await;
    let points = |now: &Value| now["rules"][0]["denied"].as_array().expect("points").len() as u64;
    let number = |now: &Value, name: &str| now[name].as_u64().expect("a number");
    let tick = number(&all, "tick");
    assert!(tick >= 3, "{all}");
    let later = app.view(&format!("now?after={}", tick - 1)).await;
    assert_eq!((number(&later, "first"), points(&later)), (tick, 1));
    let none = app.view(&format!("now?after={tick}")).await;
    assert_eq!((number(&none, "tick"), points(&none)), (tick, 0));
    assert_eq!(number(&none, "first"), tick + 1);
    let odd = words(
        "0 1000000 9223372036854775808 -1 -9223372036854775808 1.5 x %00
        99999999999999999999999999 1&after=2 %F0%9F%8C%8A 1%202 0x1 +1 NaN 1e3",
    );
    for after in odd.into_iter().chain([""]) {
        let answer = app.get(&format!("/limits/api/now?after={after}")).await;
        match answer.status {
            200 => {
                let now = answer.json();
                let (first, tick) = (number(&now, "first"), number(&now, "tick"));
                assert_eq!(tick + 1 - first, points(&now), "{after}: {now}");
            }
            400 => {
                answer.expect_refusal(after);
            }
            other => panic!("{other} for {after}"),
        }
    }
    // What is not possible is all.
    let greatest = [u64::MAX - 300, u64::MAX - 1, u64::MAX].map(|it| it.to_string());
    let odd = ["1000000", "9223372036854775808"].map(str::to_owned);
    for after in odd.into_iter().chain(greatest) {
        let now = app.view(&format!("now?after={after}")).await;
        assert_eq!(now["first"], all["first"], "{after}");
        assert_eq!(points(&now), points(&all), "{after}");
    }
    for query in ["?", "?x=y", "?after", "?&&&"] {
        app.view(&format!("now{query}")).await;
    }
}

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
async fn what_is_known_is_not_sent_again() {
    let app = App::new(|page| page);
    app.play("wait 1500; use-up alice; wait 2000").await;
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
    app.play("wait 2000; use-up bob; wait 2000").await;
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

//! What the example prints.

use std::process::Command;

#[test]
fn a_changed_row_holds_from_the_next_request_on() {
    let example = Command::new(env!("CARGO_BIN_EXE_tenants")).output();
    let output = example.expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let answers = text
        .lines()
        .filter_map(|line| line.strip_prefix("GET /api?"));
    let heads = answers.map(|answer| answer.split(';').take(2).collect::<Vec<_>>().join(";"));
    assert_eq!(
        heads.collect::<Vec<_>>(),
        [
            "acme -> 200 OK [ratelimit: \"api\";r=1",
            "acme -> 200 OK [ratelimit: \"api\";r=0",
            "acme -> 429 Too Many Requests [ratelimit: \"api\";r=0",
            "other -> 200 OK [ratelimit: \"api\";r=0",
            "other -> 429 Too Many Requests [ratelimit: \"api\";r=0",
            "acme -> 200 OK [ratelimit: \"api\";r=1",
            "acme -> 200 OK [ratelimit: \"api\";r=0",
            "acme -> 429 Too Many Requests [ratelimit: \"api\";r=0",
        ],
        "{text}"
    );
}

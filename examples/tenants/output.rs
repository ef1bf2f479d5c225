//! What the example prints.

use std::process::Command;

#[test]
fn a_table_is_read_once_again_and_not_for_ever() {
    let example = Command::new(env!("CARGO_BIN_EXE_tenants")).output();
    let output = example.expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| !line.ends_with(':'));
    let heads = lines.map(|line| line.split(';').take(2).collect::<Vec<_>>().join(";"));
    assert_eq!(
        heads.collect::<Vec<_>>(),
        [
            "GET /api?acme -> 200 OK [ratelimit: \"api\";r=1",
            "GET /api?acme -> 200 OK [ratelimit: \"api\";r=0",
            "GET /api?acme -> 429 Too Many Requests [ratelimit: \"api\";r=0",
            "GET /api?other -> 200 OK [ratelimit: \"api\";r=0",
            "GET /api?other -> 429 Too Many Requests [ratelimit: \"api\";r=0",
            "the database was read 2 times",
            "GET /api?acme -> 200 OK [ratelimit: \"api\";r=1",
            "(what is known of acme stays: Table 'tenants' does not exist)",
            "GET /api?acme -> 200 OK [ratelimit: \"api\";r=0",
            "GET /api?acme -> 429 Too Many Requests [ratelimit: \"api\";r=0",
            "the database was read 4 times",
        ],
        "{text}"
    );
}

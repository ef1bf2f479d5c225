//! Law 12 for `refund-on`: what can be wrong is an error that names file, key and line.

use super::*;

fn with(line: &str) -> String {
    format!("[rules.login]\nmax-count = 50\nwindow = \"1h\"\nkey = \"header:x-key\"\n{line}\n")
}

/// Mistakes: each is told with its line, and none is taken for something else.
#[test]
fn mistakes() {
    let wrong = [
        r#"[]|"2xx"|200|[200]|[""]|["2xx", ""]|["2"]|["20"]|["xx"]|["2x"]|["2x0"]|["20x"]|["0xx"]"#,
        r#"["6xx"]|["9xx"]|["099"]|["600"]|["000"]|["1000"]|["-200"]|["+20"]|[" 2xx"]|["2xx "]"#,
        r#"["2xx,3xx"]|["2xx-3xx"]|["grpc"]|["grpc-"]|["grpc-17"]|["grpc--1"]|["grpc-x"]"#,
        r#"["grpc-00"]|["grpc-+1"]|["OK"]|["success"]|["２xx"]|true|{ status = "2xx" }|[["2xx"]]"#,
    ];
    for text in wrong.iter().flat_map(|it| it.split('|')) {
        let error = Rules::from_toml(&with(&format!("refund-on = {text}")));
        let told = error.expect_err(text).to_string();
        assert!(told.contains("refund-on"), "{text}: {told}");
        let has_line = told.contains(":5") || told.contains("line 5");
        assert!(has_line && told.len() < 400, "{text}: {told}");
    }
}

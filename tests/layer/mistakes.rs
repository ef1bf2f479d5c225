//! What is said of mistakes in files. The files of the folder `mistakes` show one after the other,
//! each below a comment with what is said of it. Behind `^4 #` the first four lines are those of the
//! one before.

use crate::*;

/// What follows a mistake changes nothing of what is said of it, if the whole is TOML.
const ANOTHER_RULE: &str = "\n[rules.last]\nmax-count = 1\nwindow = \"1s\"\n";

/// The texts of a file, each with its comment.
fn texts(file: &str) -> Vec<String> {
    let mut texts = Vec::<Vec<&str>>::new();
    for line in file.split('\n') {
        let (shared, comment) = match line.strip_prefix('^') {
            Some(rest) => rest.split_once(' ').expect("a comment"),
            None => ("0", line),
        };
        if !comment.starts_with("# line ") {
            texts.last_mut().expect("a comment first").push(line);
            continue;
        }
        let before = texts.last().into_iter().flatten().skip(1);
        let shared = before.take(shared.parse().expect("a number")).copied();
        texts.push([comment].into_iter().chain(shared).collect());
    }
    texts.iter().map(|lines| lines.join("\n")).collect()
}

/// Whatever a file or code has, nobody waits for what is refused.
#[test]
fn too_many_quotas_are_refused_at_once() {
    const MANY: u32 = 50_000;
    let began = Instant::now();
    let quotas = r#"{ max-count = 5, window = "1s" },"#.repeat(MANY as usize);
    let of_file = Rules::from_toml(&format!("[rules.api]\nquotas = [{quotas}]"));
    let of_code = Rule::new("api", (0..MANY).map(Quota::per_hour));
    for said in [
        of_file.expect_err("too many").to_string(),
        of_code.expect_err("too many").to_string(),
    ] {
        assert!(said.ends_with("50000 quotas, expected 1 to 16"), "{said}");
    }
    assert!(began.elapsed() < PATIENT, "{:?}", began.elapsed());
}

#[test]
fn each_is_told_with_its_line_and_what_is_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("layer/mistakes");
    let (mut number, mut others) = (0, Vec::new());
    for file in fs::read_dir(folder).expect("a folder") {
        let path = file.expect("a file").path();
        let is_syntax = path.ends_with("syntax.toml");
        for text in texts(&fs::read_to_string(path).expect("a text")) {
            let (expected, _) = text.split_once('\n').expect("a comment");
            for more in if is_syntax {
                &[""][..]
            } else {
                &["", ANOTHER_RULE]
            } {
                let said = match Rules::from_toml(&format!("{text}{more}")) {
                    Ok(_) => "nothing".to_owned(),
                    Err(error) => error.to_string(),
                };
                if format!("# {said}") != expected {
                    others.push(format!("{text}{more}\n  {said}"));
                }
            }
            number += 1;
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert!(number > 150, "{number}");
}

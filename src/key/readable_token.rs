//! What in the text of a key looks like a token that somebody could use.

/// How the tokens of well-known services begin, and those of fields: a digit, a letter and enough
/// characters follow.
const BEGINNINGS: [&str; 25] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_",
    "rk_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "AIza",
    "ya29.",
    "hf_",
    "npm_",
    "pypi-",
    "SG.",
    "dop_v1_",
    "shpat_",
    "eyJ",
    "Bearer%20",
    "Basic%20",
];
const MIN_BEHIND_BEGINNING: usize = 16;
/// Shorter mixed texts may be the ids of users, as many services make them. The tokens of Telegram's
/// bots have so many characters.
const MIN_MIXED: usize = 35;
/// What stands between the parts of keys, and of what clients send, as keys have it.
const SEPARATORS: [&str; 6] = [":", "|", "<", ">", "%3A", "%7C"];

/// The text of a key, with the first four characters of what looks like a token in place of it.
#[cfg(feature = "page")]
pub(crate) fn masked(text: &str) -> String {
    let parts = parts(text).map(|(part, separator)| match looks_like_token(part) {
        true => format!("{}…{separator}", &part[..4]),
        false => format!("{part}{separator}"),
    });
    parts.collect()
}

/// Whether a readable part of the text of a key looks like a token.
pub(crate) fn has_token(text: &str) -> bool {
    parts(text).any(|(part, _)| looks_like_token(part))
}

/// The parts of a key, each with the separator behind it.
fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let found = SEPARATORS.iter();
        let found = found.filter_map(|it| Some((text.find(it)?, it.len())));
        let (end, length) = found.min().unwrap_or((text.len(), 0));
        let (part, behind) = text.split_at(end);
        let (separator, behind) = behind.split_at(length);
        rest = (length > 0).then_some(behind);
        Some((part, separator))
    })
}

fn looks_like_token(part: &str) -> bool {
    let behind = BEGINNINGS.iter().find_map(|it| part.strip_prefix(it));
    let is_known = behind.is_some_and(|it| {
        let has = |is: fn(&u8) -> bool| it.bytes().any(|byte| is(&byte));
        let is_long = it.len() >= MIN_BEHIND_BEGINNING;
        is_long && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
    });
    is_known || is_random(part.as_bytes())
}

/// Whether a part is long, and its kinds of characters change so often as in no name. A hexadecimal
/// number, a UUID and an address have letters of one case.
fn is_random(part: &[u8]) -> bool {
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=+.".contains(byte);
    if part.len() < MIN_MIXED || !part.iter().all(is_of_token) {
        return false;
    }
    let kind = |byte: u8| {
        let of = [
            u8::is_ascii_uppercase,
            u8::is_ascii_lowercase,
            u8::is_ascii_digit,
        ];
        of.iter().position(|is| is(&byte))
    };
    let changes = part
        .windows(2)
        .filter(|pair| kind(pair[0]) != kind(pair[1]));
    let has_all = (0..3).all(|one| part.iter().any(|byte| kind(*byte) == Some(one)));
    has_all && changes.count() >= part.len() / 2
}

#[cfg(all(test, feature = "page"))]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_masked_and_names_are_not() {
        for (text, shown) in [
            ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_…"),
            ("acme:sk-proj-4f9aB2kd83jd72hs01", "acme:sk-p…"),
            (
                "header.x-key|<a:sk_live_51H8x2eZvKYlo2C>",
                "header.x-key|<a:sk_l…>",
            ),
            (
                "user>eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
                "user>eyJh…",
            ),
            ("Bearer%20opaque0token1of2mine", "Bear…"),
            ("7%7Cghp_16C7e42F292c6912E7710c", "7%7Cghp_…"),
            (
                "123456789%3AAAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawq",
                "123456789%3AAAHd…",
            ),
            ("kX9vQ2mZ7pLr4TnB8wYcJ6dFh3GsAe5uRq1xKo", "kX9v…"),
        ] {
            assert_eq!(masked(text), shown);
        }
        for text in [
            "",
            "alice@example.com",
            "203.0.113.7",
            "2001%3Adb8%3A%3A/64",
            "0b6f1e5e-7c1d-4f5a-9f0e-2f6d1c9e8a77",
            "0B6F1E5E-7C1D-4F5A-9F0E-2F6D1C9E8A77",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "#ba7816bf8f01cfea414140de5dae2223",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "user_2NNEqL2krIRdJ194kdJqAHwEfxC",
            "sk-the-name-of-a-customer",
            "sk-tenant7",
            "MyCompany2024-production-tenant-europe-west1",
            "TheVeryLongCamelCaseNameOfTheTenant2024",
            "/v1/Users/{id}/Orders/{order}/Items/{item1}",
            "999999999999999999999999999999999999999",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}

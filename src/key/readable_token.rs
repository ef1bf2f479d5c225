//! What in the text of a key looks like a token that somebody could use.

/// How the tokens of well-known services begin, and those of fields: a digit, a letter and enough
/// characters follow.
const BEGINNINGS: &str = "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- sk- sk_ rk_ xoxb- xoxp- \
     xoxa- AKIA AIza ya29. hf_ npm_ pypi- SG. dop_v1_ shpat_ eyJ Bearer%20 Basic%20";
const MIN_BEHIND_BEGINNING: usize = 16;
/// Shorter mixed texts may be the ids of users, as many services make them. The tokens of Telegram's
/// bots have so many characters.
const MIN_MIXED: usize = 35;
/// What stands between the parts of keys, and of what clients send, as keys have it.
const SEPARATORS: [&str; 6] = [":", "|", "<", ">", "%3A", "%7C"];

/// Whether a readable part of the text of a key looks like a token.
pub(crate) fn has_token(text: &str) -> bool {
    parts(text).any(|(part, _)| looks_like_token(part))
}

/// The parts of a key, each with the separator behind it.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
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

/// Whether it is one of the tokens of well-known services, or as random as those.
pub(crate) fn looks_like_token(part: &str) -> bool {
    let mut beginnings = BEGINNINGS.split(' ');
    let behind = beginnings.find_map(|it| part.strip_prefix(it));
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

//! Texts of somebody else in logs, answers and pages.

/// The first and the last character of each range of what is not seen, or turns or ends a line:
/// Cc, Cf, Zl and Zp of Unicode 16.
const UNSEEN: [u32; 46] = [
    0x0, 0x1f, 0x7f, 0x9f, 0xad, 0xad, 0x600, 0x605, 0x61c, 0x61c, 0x6dd, 0x6dd, 0x70f, 0x70f,
    0x890, 0x891, 0x8e2, 0x8e2, 0x180e, 0x180e, 0x200b, 0x200f, 0x2028, 0x202e, 0x2060, 0x2064,
    0x2066, 0x206f, 0xfeff, 0xfeff, 0xfff9, 0xfffb, 0x110bd, 0x110bd, 0x110cd, 0x110cd, 0x13430,
    0x1343f, 0x1bca0, 0x1bca3, 0x1d173, 0x1d17a, 0xe0001, 0xe0001, 0xe0020, 0xe007f,
];

/// The text with a blank in place of each such character.
pub fn blanked(text: &str) -> String {
    let is_unseen = |it: char| {
        UNSEEN
            .chunks(2)
            .any(|of| (of[0]..=of[1]).contains(&it.into()))
    };
    text.replace(is_unseen, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_leaves() {
        for hidden in
            "\n\u{7f}\u{85}\u{ad}\u{200b}\u{2028}\u{202e}\u{2066}\u{feff}\u{e0041}".chars()
        {
            assert_eq!(blanked(&format!("a{hidden}b")), "a b", "{hidden:?}");
        }
        let seen = "Zoë: ~\u{a0}\u{ae}\u{2010}\u{202f} 漢字 🙂";
        assert_eq!(blanked(seen), seen);
        assert!(UNSEEN.is_sorted());
    }
}

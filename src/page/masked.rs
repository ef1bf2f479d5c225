use crate::key::readable_token::{looks_like_token, parts};

/// The text of a key, with the first four characters of what looks like a token in place of it.
pub(super) fn masked(text: &str) -> String {
    let parts = parts(text).map(|(part, separator)| {
        if looks_like_token(part) {
            format!("{}…{separator}", &part[..4])
        } else {
            format!("{part}{separator}")
        }
    });
    parts.collect()
}

#[cfg(test)]
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

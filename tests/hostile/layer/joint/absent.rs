//! Requests without some of their keys, in all combinations with subjects that may be absent.

use super::*;

const NAMES: [&str; 3] = ["user", "address", "tenant"];

/// A rule of three subjects; those of these bits may be absent.
fn file(skips: usize) -> String {
    let quotas = NAMES.iter().enumerate().map(|(at, name)| {
        let absent = match skips >> at & 1 {
            0 => "",
            _ => ", absent = \"skip\"",
        };
        format!(
            "{{ max-count = 9, window = \"1h\", key = \"header:x-{name}\", subject = \
             \"{name}\"{absent} }}"
        )
    });
    let quotas: Vec<_> = quotas.collect();
    format!("[rules.api]\nquotas = [{}]\n", quotas.join(", "))
}

/// A request without a key that is needed gets a 400 and is charged nowhere; one without a key that
/// may be absent is charged in the other subjects.
#[tokio::test]
async fn all_combinations() {
    let (_server, stores) = stores().await;
    for store in stores {
        for skips in 0..7 {
            for present in 0..8 {
                let limits = limits(&file(skips), Arc::clone(&store));
                let app = app(limits.layer("api"));
                let value = format!("{skips}-{present}");
                let mut fields = Vec::new();
                let mut keys = Vec::new();
                for (at, name) in NAMES.iter().enumerate() {
                    if present >> at & 1 == 1 {
                        fields.push(format!("x-{name}: {value}"));
                    }
                    keys.push((*name, header(&format!("x-{name}"), &value)));
                }
                let status = ask(&app, &fields.join(", ")).await;
                let is_whole = present | skips == 7;
                let story = format!("skips {skips:03b}, present {present:03b}");
                assert_eq!(status, if is_whole { 200 } else { 400 }, "{story}");
                let charged = |at: usize| u64::from(is_whole && present >> at & 1 == 1);
                let keys = SubjectKeys::from_iter(keys);
                let left = left(&limits, keys).await;
                assert_eq!(left, [0, 1, 2].map(|at| 9 - charged(at)), "{story}");
            }
        }
    }
    let error = Limits::from_toml(&file(7)).expect_err("all may be absent");
    assert!(error.to_string().contains("absent"), "{error}");
}

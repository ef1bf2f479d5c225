//! Any async function may be limited: what it takes, and what its body does, stays as it was.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use tidegate::key::Everyone;
use tidegate::{Key, Limits, limited};

use crate::{Error, once};

#[tokio::test]
async fn keys_are_fields_elements_calls_and_values() {
    #[limited("export", key = ids[1], limits = limits)]
    async fn of_element(limits: &Limits, ids: Vec<String>) -> Result<Vec<String>, Error> {
        Ok(ids)
    }
    #[limited("export", key = name[..3], limits = limits)]
    async fn of_slice(limits: &Limits, name: &str) -> Result<(), Error> {
        let _ = name;
        Ok(())
    }
    #[limited("export", key = Key::default().with(a).with(b), limits = limits)]
    async fn of_parts(limits: &Limits, a: &str, b: &str) -> Result<(), Error> {
        Ok(())
    }
    #[limited("export", key = *id, limits = limits)]
    async fn of_reference(limits: &Limits, id: &u32) -> Result<(), Error> {
        Ok(())
    }
    #[limited("export", key = "a literal", limits = limits)]
    async fn of_literal(limits: &Limits) -> Result<(), Error> {
        Ok(())
    }
    #[limited("export", key = [("user", user)], limits = limits)]
    async fn of_subject(limits: &Limits, user: &str) -> Result<(), Error> {
        Ok(())
    }
    #[limited("export", key = user.0, limits = limits)]
    async fn of_field(limits: Limits, user: (String, String)) -> Result<(String, String), Error> {
        drop(limits);
        Ok((user.0, user.1))
    }
    let limits = once();
    let user = ("alice".to_owned(), "Alice".to_owned());
    assert_eq!(of_field(once(), user.clone()).await, Ok(user));
    let ids = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(of_element(&limits, ids.clone()).await, Ok(ids));
    assert_eq!(of_slice(&limits, "abcd").await, Ok(()));
    assert_eq!(of_slice(&limits, "abcx").await, Err(Error::Refused));
    assert_eq!(of_parts(&limits, "a", "b").await, Ok(()));
    assert_eq!(of_parts(&limits, "a", "c").await, Ok(()));
    assert_eq!(of_reference(&limits, &7).await, Ok(()));
    assert_eq!(of_literal(&limits).await, Ok(()));
    let refused = of_subject(&limits, "alice").await;
    assert_eq!(refused, Err(Error::Refused), "the rule has no subjects");
}

#[tokio::test]
async fn the_path_cost_plan_and_wait_are_expressions() {
    const PATH: &str = "export";
    struct Job {
        path: String,
        rows: u32,
        plan: String,
    }
    #[limited(
        job.path,
        key = Everyone,
        limits = limits,
        cost = u64::from(job.rows),
        plan = job.plan,
        wait = Duration::from_millis(u64::from(job.rows)),
    )]
    async fn run(limits: &Limits, job: Job) -> Result<Job, Error> {
        Ok(job)
    }
    #[limited(PATH, key = Everyone, limits = limits, cost = 0)]
    async fn look(limits: &Limits) -> Result<(), Error> {
        Ok(())
    }
    let job = |rows| Job {
        path: PATH.into(),
        rows,
        plan: "pro".into(),
    };
    let limits = once();
    assert_eq!(look(&limits).await, Ok(()));
    assert!(
        run(&limits, job(2)).await.is_err(),
        "the rule admits one row"
    );
    assert!(run(&limits, job(1)).await.is_ok());
}

#[tokio::test]
async fn question_marks_and_early_returns_are_those_of_the_body() {
    #[limited("export", key = number, limits = limits)]
    async fn parse(limits: &Limits, number: &str) -> Result<u32, Error> {
        if number.is_empty() {
            return Ok(0);
        }
        let number = number.parse().map_err(|_| Error::Own)?;
        tokio::task::yield_now().await;
        Ok(number)
    }
    let limits = once();
    assert_eq!(parse(&limits, "").await, Ok(0));
    assert_eq!(parse(&limits, "7").await, Ok(7));
    assert_eq!(parse(&limits, "x").await, Err(Error::Own));
    assert_eq!(parse(&limits, "x").await, Err(Error::Refused));
}

#[tokio::test]
async fn arguments_may_be_patterns_mutable_generic_and_borrowed() {
    struct Wrapped<T>(T);
    #[limited("export", key = id, limits = limits)]
    async fn longest<'a, T, const N: usize>(
        Wrapped(limits): Wrapped<&Limits>,
        (id, mut words): (u64, Vec<&'a str>),
        also: &'a T,
        first: [impl Into<String> + Copy; N],
    ) -> Result<(&'a str, String), Error>
    where
        T: AsRef<str> + ?Sized,
    {
        words.push(also.as_ref());
        let longest = words.into_iter().max_by_key(|it| it.len());
        Ok((longest.unwrap_or_default(), first[0].into()))
    }
    #[limited("report", key = Everyone, limits = limits)]
    async fn elided<'a>(limits: &Limits, text: &'a mut String) -> Result<Cow<'a, str>, Error> {
        text.push('!');
        Ok(text.as_str().into())
    }
    let limits = once();
    let found = longest(Wrapped(&limits), (1, vec!["a", "bb"]), "ccc", ["d"; 2]).await;
    assert_eq!(found, Ok(("ccc", "d".into())));
    let mut text = "now".to_owned();
    assert_eq!(elided(&limits, &mut text).await.as_deref(), Ok("now!"));
}

#[tokio::test]
async fn a_body_may_hold_what_is_not_send() {
    #[limited("report", key = Everyone, limits = limits)]
    async fn local(limits: &Limits) -> Result<u32, Error> {
        let shared = Rc::new(7);
        tokio::task::yield_now().await;
        Ok(*shared)
    }
    assert_eq!(local(&once()).await, Ok(7));
}

#[tokio::test]
async fn several_attributes_are_several_limits() {
    #[limited("export", key = Everyone, limits = limits)]
    #[limited("report", key = id, limits = limits)]
    async fn export(limits: &Limits, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
    let limits = once();
    assert_eq!(export(&limits, 1).await, Ok(1));
    assert_eq!(export(&limits, 2).await, Err(Error::Refused));
}

mod renamed {
    use tidegate as gate;

    use crate::{Error, once};

    #[tokio::test]
    async fn the_crate_may_have_another_name() {
        #[gate::limited("export", key = id, limits = limits, crate = gate)]
        async fn export(limits: gate::Limits, id: u8) -> Result<u8, Error> {
            Ok(id)
        }
        #[gate::limited("export", key = id, limits = limits, crate = crate::functions::renamed::gate)]
        async fn again(limits: gate::Limits, id: u8) -> Result<u8, Error> {
            Ok(id)
        }
        let limits = once();
        assert_eq!(export(limits.clone(), 1).await, Ok(1));
        assert_eq!(again(limits, 1).await, Err(Error::Refused));
    }
}

#[tokio::test]
async fn without_limits_the_installed_ones_apply() {
    #[limited("export", key = "nightly")]
    async fn nightly() -> Result<(), Error> {
        Ok(())
    }
    once().install();
    assert_eq!(nightly().await, Ok(()));
    assert_eq!(nightly().await, Err(Error::Refused));
}

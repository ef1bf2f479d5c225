//! Whatever the user has named like what the attribute might write, it means the user's.

use tidegate::key::Everyone;
use tidegate::limited;

use crate::{Error, once};

/// Arguments, callbacks' captures and locals with the names that a macro would choose.
#[tokio::test]
async fn arguments_with_the_macro_s_own_names() {
    #[limited(
        "export",
        key = call,
        limits = tidegate,
        degrade = async move |_| Ok(vec![chain]),
        on_error = async move |_| Ok(vec![result]),
    )]
    async fn export(
        tidegate: &tidegate::Limits,
        call: &str,
        returned: u8,
        limits: u8,
        key: u8,
        chain: u8,
        result: u8,
    ) -> Result<Vec<u8>, Error> {
        let answer = returned + limits;
        let path = key + chain + result;
        let value = call.len();
        Ok(vec![answer, path, u8::try_from(value).unwrap_or(0)])
    }
    let all = once();
    let export = async || export(&all, "abc", 1, 2, 4, 6, 7).await;
    assert_eq!(export().await, Ok(vec![3, 17, 3]));
    assert_eq!(export().await, Ok(vec![6]), "the callback");
}

mod modules {
    //! Modules, types, functions and macros in scope that hide those of the language.
    #![allow(dead_code, unused_macros)]

    use crate::once;

    mod core {}
    mod std {}
    mod alloc {}
    mod tidegate {}
    mod limits {}
    fn call() {}
    fn returned() {}
    struct Limits;
    struct Call;
    struct CallError;
    struct Refused;
    trait Into {}
    trait From {}
    trait AsRef {}
    trait Future {}
    trait AsyncFnOnce {}
    enum Option {
        None,
    }
    enum Answer {
        Ok(u8),
        Err(&'static str),
    }
    use Answer::{Err, Ok};
    macro_rules! panic {
        () => {};
    }
    macro_rules! unreachable {
        () => {};
    }
    struct Result;
    type String = u8;
    type Box = u8;
    type Send = u8;

    impl ::core::convert::From<::tidegate::layer::Refused> for Answer {
        fn from(_: ::tidegate::layer::Refused) -> Self {
            Err("refused")
        }
    }

    async fn none(_: ::tidegate::Denied) -> Answer {
        Err("denied")
    }

    async fn failed(_: ::tidegate::Failed) -> Answer {
        Err("failed")
    }

    #[::tidegate::limited("export", key = number, limits = all, degrade = none, on_error = failed)]
    async fn export(all: &::tidegate::Limits, number: u8) -> Answer {
        Ok(number)
    }

    #[::tidegate::limited("report", key = number, limits = all, degrade = other)]
    async fn returns(all: &::tidegate::Limits, number: u8) -> Number {
        Number(Ok(number))
    }

    struct Number(Answer);

    impl ::core::convert::From<::tidegate::layer::Refused> for Number {
        fn from(_: ::tidegate::layer::Refused) -> Self {
            Self(Err("refused"))
        }
    }

    async fn other(_: ::tidegate::Denied) -> Number {
        Number(Err("denied"))
    }

    #[tokio::test]
    async fn what_hides_the_language_s_own() {
        let all = once();
        assert!(matches!(export(&all, 1).await, Ok(1)));
        assert!(matches!(export(&all, 1).await, Err("denied")));
        assert!(matches!(returns(&all, 1).await, Number(Ok(1))));
        assert!(matches!(returns(&all, 1).await, Number(Err("denied"))));
    }
}

/// The body has names of its own, also for what stands outside of it.
#[tokio::test]
async fn locals_and_macros_of_the_body() {
    macro_rules! call {
        ($limits:ident) => {
            Ok::<_, Error>($limits.len())
        };
    }
    #[limited("export", key = Everyone, limits = limits)]
    async fn export(limits: &tidegate::Limits, texts: &[&str]) -> Result<usize, Error> {
        let _ = limits;
        let call = texts;
        let limits = call;
        let returned = call!(limits)?;
        let tidegate = std::iter::repeat_n(returned, 3);
        'call: {
            for core in tidegate {
                if core > 0 {
                    break 'call;
                }
            }
            return Err(Error::Own);
        }
        let run = async |it: usize| it + 1;
        let text = format!("{returned}{}", run(returned).await);
        Ok(text.len() + vec![returned; 2].len())
    }
    let limits = once();
    assert_eq!(export(&limits, &["a"]).await, Ok(4));
    assert_eq!(export(&limits, &["a"]).await, Err(Error::Refused));
}

//! Functions of all shapes.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use tidegate::key::Everyone;
use tidegate::{Denied, Failed, Limits, limited};

use crate::{Error, once};

/// It calls itself, as an async function must: boxed.
#[limited("report", key = Everyone, limits = limits, degrade = end, on_error = fail, cost = 0)]
async fn count_down(limits: &Limits, number: u32) -> u32 {
    match number {
        0 => 0,
        _ => 1 + Box::pin(count_down(limits, number - 1)).await,
    }
}

async fn end(_: Denied) -> u32 {
    1_000
}

async fn fail(_: Failed) -> u32 {
    1_000_000
}

#[tokio::test]
async fn recursion() {
    assert_eq!(count_down(&once(), 30).await, 30);
}

/// Generic functions, lifetimes and bounds, also those of the type around.
#[tokio::test]
async fn generic_types_and_methods() {
    struct Repository<'a, T, const N: usize> {
        limits: &'a Limits,
        items: [T; N],
    }
    impl<'a, T: Display + Sync, const N: usize> Repository<'a, T, N> {
        #[limited("export", key = index, limits = self.limits)]
        async fn item<'b, F>(&'a self, index: usize, with: F) -> Result<(&'a T, F::Out), Error>
        where
            F: Extract<'b, T>,
            'a: 'b,
        {
            let item = self.items.get(index).ok_or(Error::Own)?;
            Ok((item, with.extract(item)))
        }

        #[limited("report", key = self.items[0].to_string(), limits = self.limits)]
        async fn swap<'s>(&'s mut self, item: &mut T) -> Result<&'s mut [T; N], Error> {
            tokio::task::yield_now().await;
            std::mem::swap(&mut self.items[0], item);
            Ok(&mut self.items)
        }
    }
    trait Extract<'b, T> {
        type Out;
        fn extract(&self, from: &'b T) -> Self::Out;
    }
    struct Text<O>(PhantomData<O>);
    impl<T: Display> Extract<'_, T> for Text<String> {
        type Out = String;
        fn extract(&self, from: &T) -> String {
            from.to_string()
        }
    }
    let limits = once();
    let items = [1, 2, 3];
    let mut repository = Repository {
        limits: &limits,
        items,
    };
    let mut item = 7;
    let swapped = repository.swap(&mut item).await;
    assert_eq!(swapped.map(|it| it[0]), Ok(7));
    let found = repository.item(0, Text(PhantomData)).await;
    assert_eq!(found, Ok((&7, "7".to_owned())));
    let found = repository.item(0, Text(PhantomData)).await;
    assert_eq!(found, Err(Error::Refused));
}

/// `impl Trait`, `mut`, `self: Pin<&mut Self>` and other receivers, `extern` and `unsafe`-free all.
#[tokio::test]
async fn arguments_and_receivers() {
    struct Job {
        limits: Limits,
        runs: u32,
    }
    impl Job {
        #[limited("export", key = "k", limits = self.limits)]
        async fn shared(self: std::sync::Arc<Self>) -> Result<u32, Error> {
            Ok(self.runs)
        }

        #[limited("report", key = "pinned", limits = self.limits)]
        async fn pinned(mut self: Pin<&mut Self>) -> Result<u32, Error> {
            self.runs += 1;
            Ok(self.runs)
        }

        #[limited("report", key = "mut", limits = self.limits)]
        async fn consumed(mut self) -> Result<u32, Error> {
            self.runs += 1;
            Ok(self.runs)
        }

        #[limited("export", key = "boxed", limits = self.limits)]
        async fn boxed(self: Box<Self>, mut more: u32) -> Result<u32, Error> {
            more += self.runs;
            Ok(more)
        }
    }
    #[limited("export", key = words.len(), limits = limits)]
    async fn of_traits(
        limits: impl AsRef<str> + AsLimits,
        mut words: Vec<impl Into<String> + Clone>,
        mut each: impl AsyncFnMut(&str) -> usize,
    ) -> Result<usize, Error> {
        let _ = limits.as_ref();
        let last: String = words.pop().ok_or(Error::Own)?.into();
        Ok(each(&last).await)
    }
    trait AsLimits: std::ops::Deref<Target = Limits> {}
    struct Named(Limits);
    impl std::ops::Deref for Named {
        type Target = Limits;
        fn deref(&self) -> &Limits {
            &self.0
        }
    }
    impl AsRef<str> for Named {
        fn as_ref(&self) -> &'static str {
            "named"
        }
    }
    impl AsLimits for Named {}

    let limits = once();
    let job = || Job {
        limits: limits.clone(),
        runs: 7,
    };
    assert_eq!(std::sync::Arc::new(job()).shared().await, Ok(7));
    assert_eq!(
        std::sync::Arc::new(job()).shared().await,
        Err(Error::Refused)
    );
    assert_eq!(Pin::new(&mut job()).pinned().await, Ok(8));
    assert_eq!(job().consumed().await, Ok(8));
    assert_eq!(Box::new(job()).boxed(1).await, Ok(8));
    let named = Named(limits.clone());
    let mut sum = 0;
    let each = async |word: &str| {
        sum += word.len();
        sum
    };
    assert_eq!(of_traits(named, vec!["a", "bc"], each).await, Ok(2));
}

/// Attributes stay where they are: docs, `cfg`, lints, `must_use`, and `inline`.
#[tokio::test]
async fn other_attributes() {
    struct Job(Limits);
    #[limited("export", key = "block", limits = self.0)]
    impl Job {
        /// Its docs.
        #[cfg(any())]
        async fn never(&self) -> NoSuchType {}

        #[cfg(test)]
        #[must_use = "it is counted"]
        #[inline]
        #[allow(clippy::unused_async, reason = "it may wait one day")]
        pub(crate) async fn always(&self, #[cfg(any())] no: NoSuchType) -> Result<u8, Error> {
            #![allow(unused_variables, reason = "for the test")]
            let unused = 1;
            Ok(7)
        }
    }
    let job = Job(once());
    assert_eq!(job.always().await, Ok(7));
    assert_eq!(job.always().await, Err(Error::Refused));
}

/// A method's own attribute wins, also where it depends on a `cfg`.
#[tokio::test]
async fn an_own_attribute_under_a_condition() {
    struct Job(Limits);
    #[limited("export", key = "block", limits = self.0)]
    impl Job {
        async fn of_block(&self) -> Result<u8, Error> {
            Ok(7)
        }

        #[cfg_attr(test, limited("report", key = "own", limits = self.0))]
        async fn own(&self) -> Result<u8, Error> {
            Ok(8)
        }
    }
    let job = Job(once());
    assert_eq!(job.of_block().await, Ok(7));
    assert_eq!(
        job.own().await,
        Ok(8),
        "it is not limited by the block, too"
    );
}

/// Of traits: associated types, default methods, futures that are `Send`.
#[tokio::test]
async fn traits() {
    trait Jobs {
        type Output: Send;
        const NAME: &'static str;

        fn limits(&self) -> &Limits;

        fn run<'a>(
            &'a self,
            input: &'a str,
        ) -> impl Future<Output = Result<Self::Output, Error>> + Send + 'a;

        #[limited("report", key = Self::NAME, limits = self.limits())]
        #[allow(async_fn_in_trait, reason = "of this test alone")]
        async fn by_default(&self) -> Result<&'static str, Error> {
            Ok(Self::NAME)
        }
    }
    struct Lengths(Limits);
    #[limited("export", key = *input, limits = self.0)]
    impl Jobs for Lengths {
        type Output = usize;
        const NAME: &'static str = "lengths";

        fn limits(&self) -> &Limits {
            &self.0
        }

        async fn run(&self, input: &str) -> Result<usize, Error> {
            tokio::task::yield_now().await;
            Ok(input.len())
        }
    }
    let jobs = Lengths(once());
    assert_eq!(jobs.by_default().await, Ok("lengths"));
    assert_eq!(jobs.by_default().await, Err(Error::Refused));
    let task = tokio::spawn(async move { (jobs.run("abc").await, jobs.run("abc").await) });
    assert_eq!(task.await.expect("no panic"), (Ok(3), Err(Error::Refused)));
}

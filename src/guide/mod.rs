//! The guides: what a user of this crate does, task by task.
//!
//! They are the files of `docs/` in the repository. Pictures, and what was measured, are there too.
//!
//! | guide | for |
//! |---|---|
//! | [`cookbook`] | a snippet for each task |
//! | [`config`] | every key of the file with the rules |
//! | [`production`] | what to check before you go live |
//! | [`troubleshooting`] | what to do, by what you see |
//! | [`capacity`] | what you need for your traffic |
//! | [`proxies`] | the address of a client behind nginx, Cloudflare and others |
//! | [`clients`] | what clients make of a denial, and what to set for them |
//! | [`testing`] | tests of an application with limits |
//! | [`page`] | who is limited now, and let this customer through |
//! | [`resilience`] | what happens while Redis fails |
//! | [`metrics`] | names, alerts and a dashboard |
//! | [`reload`] | what replacing the rules of a file guarantees |
//! | [`upgrading`] | which changes begin counts anew, and what a rollout admits |
//! | [`grpc`] | limits for tonic |
//! | [`topologies`] | one server, a cluster, sentinels, TLS |
//! | [`security`] | who could attack what, and an ACL line |
//! | [`guarantees`] | what holds, what does not, and how it is tested |
//! | [`compare`] | other limiters, and when to take them |
//! | [`migrating`] | the settings of other crates, gateways and frameworks |
//! | [`redisson`] | limiters and locks that Java shares |

/// A guide. Its links to files lead to pages of this documentation: the first definition wins.
macro_rules! guides {
    ($($(#[$attribute:meta])* $name:ident = $file:literal,)+) => {
        $($(#[$attribute])*
        #[doc = concat!(include_str!("links.md"), "\n", include_str!(concat!("../../docs/", $file)))]
        pub mod $name {})+
    };
}

guides! {
    cookbook = "cookbook.md",
    // `tidegate::config` is the same text, and tests its examples.
    #[cfg(not(doctest))]
    config = "config.md",
    production = "production.md",
    troubleshooting = "troubleshooting.md",
    capacity = "capacity.md",
    proxies = "proxies.md",
    clients = "clients.md",
    testing = "testing.md",
    page = "page.md",
    resilience = "resilience.md",
    metrics = "metrics.md",
    reload = "reload.md",
    upgrading = "upgrading.md",
    // Its examples need tonic; `tests/grpc` tests them.
    #[cfg(not(doctest))]
    grpc = "grpc.md",
    topologies = "topologies.md",
    security = "security.md",
    guarantees = "guarantees.md",
    compare = "compare.md",
    migrating = "migrating.md",
    redisson = "redisson.md",
}

/// The programs of the summary for coding assistants, compiled.
#[cfg(all(doctest, feature = "config", feature = "macros", feature = "redis"))]
#[doc = include_str!("../../llms.txt")]
mod llms {}

//! The examples of `docs/grpc.md`, compiled with tonic.
#![doc = include_str!("../../docs/grpc.md")]

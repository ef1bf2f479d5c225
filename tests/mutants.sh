#!/usr/bin/env bash
# Builds the crate with one mistake after the other, and checks that some test notices each. About fifteen minutes;
# `TIDEGATE_MUTANTS=short` tries the first mistake of each part.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --all-features --test mutants -- --ignored --nocapture

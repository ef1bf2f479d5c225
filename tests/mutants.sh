#!/usr/bin/env bash
# Builds the crate with one mistake after the other, and checks that some test notices each. About an hour;
# `TIDEGATE_MUTANTS=short` tries five mistakes, `TIDEGATE_MUTANTS=lock` those of a part.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --all-features --test mutants -- --ignored --nocapture

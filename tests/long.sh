#!/usr/bin/env bash
# What takes too long for every change: a million histories for each algorithm, decided alike by
# the pure functions, the memory store and Redis, 20,000 of a limiter, a million grants by a fleet
# of four processes, 200 runs of windows of 1 to 130 ms, ten million grants by four processes of
# which two lease units, a million takes of three subjects, 200,000 requests charged by outcome,
# 200,000 that use more or less than they reserved, 200,000 that hold permits, twenty bursts beside
# busy loops, 10,000 requests that wait, hundreds of simulated fleets that lease, 100,000
# acquisitions of one lock by four that are stopped again and again, ten million keys in memory,
# half a million calls beside Redisson, a hundred cycles of each outage, and half an hour of faults
# under load. About two hours on two cores. The fuzz targets are apart, since they want nightly
# Rust: fuzz/run.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

# Other random numbers in each run; the same again with the seed that is printed.
TIDEGATE_SEED=${TIDEGATE_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export TIDEGATE_SEED
echo "tests/long.sh: TIDEGATE_SEED=$TIDEGATE_SEED" >&2

export TIDEGATE_HISTORIES=${TIDEGATE_HISTORIES:-1000000}
export TIDEGATE_FLEET_SECONDS=${TIDEGATE_FLEET_SECONDS:-22}
bash tests/run.sh --release --test store history -- --nocapture
TIDEGATE_HISTORIES=$((TIDEGATE_HISTORIES / 10)) bash tests/run.sh --release --test store usual_case
TIDEGATE_HISTORIES=$((TIDEGATE_HISTORIES / 10)) bash tests/run.sh --release --test store joint::
TIDEGATE_HISTORIES=$((TIDEGATE_HISTORIES / 100)) bash tests/run.sh --release --test limiter history -- --nocapture
bash tests/run.sh --release --test laws
bash tests/run.sh --release --test fleet saturated -- --nocapture
TIDEGATE_SHORT_WINDOWS=${TIDEGATE_SHORT_WINDOWS:-200} bash tests/run.sh --release --test fleet short_windows -- --nocapture
TIDEGATE_OUTCOMES=${TIDEGATE_OUTCOMES:-200000} bash tests/run.sh --release --test fleet outcomes:: -- --nocapture
TIDEGATE_OWED=${TIDEGATE_OWED:-200000} bash tests/run.sh --release --test fleet owed:: -- --nocapture
TIDEGATE_STARVED=${TIDEGATE_STARVED:-20} bash tests/run.sh --release --test fleet starved:: -- --nocapture
TIDEGATE_WAITING=${TIDEGATE_WAITING:-10000} bash tests/run.sh --release --test fleet waiting:: -- --nocapture
TIDEGATE_JOINT=${TIDEGATE_JOINT:-1000000} bash tests/run.sh --release --test fleet joint:: -- --nocapture
TIDEGATE_AT_A_TIME=${TIDEGATE_AT_A_TIME:-200000} bash tests/run.sh --release --test fleet permits:: -- --nocapture
TIDEGATE_LEASED_GRANTS=${TIDEGATE_LEASED_GRANTS:-10000000} bash tests/run.sh --release --test fleet leased:: -- --nocapture
TIDEGATE_FLEETS=${TIDEGATE_FLEETS:-64} bash tests/run.sh --release --test store attacks::unit_leases::simulated -- --nocapture
TIDEGATE_ACQUISITIONS=${TIDEGATE_ACQUISITIONS:-100000} bash tests/run.sh --release --test lock soak -- --nocapture
TIDEGATE_FLOOD=${TIDEGATE_FLOOD:-10000000} bash tests/run.sh --release --test store flood:: -- --nocapture
bash tests/interop.sh --long
bash tests/guide.sh --compile
bash tests/faults.sh
bash tests/soak.sh

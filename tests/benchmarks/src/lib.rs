//! Windlass measured next to its peers, in one run on one machine.
//!
//! Each workload is a module in `src/scenarios/`. Peers are Go modules in `go/` and the crate `kube-rs/`, which is not
//! part of the workspace. Peers of parts of the runtime are benchmarks with the names of the workloads; peers of caches
//! are programs, measured from outside like the programs of this package in `src/bin/`.
//!
//! Guarantees: all programs of a scenario are built before its first measurement. Contenders are measured alternately
//! in each round, so that a slowdown of the machine affects all of them. Results contain the median over the rounds and
//! the worst round. `cargo xtask bench` builds and runs in release mode.

pub mod figures;
pub mod machine;
pub mod peer;
pub mod plot;
pub mod pods;
pub mod process;
pub mod replay;
pub mod report;
pub mod results;
pub mod scenarios;

//! Compares parts of the runtime with their peers, in one run on one machine.
//!
//! Each comparison is a program in `src/bin/`, and each peer is a folder in `go/`: a Go module whose benchmarks have
//! the names of the workloads. This library contains the measurement and the output.
//!
//! Guarantees: all programs are built before the first measurement. Peers are measured alternately in each round, so
//! that a slowdown of the machine affects all of them. The output contains the median over the rounds and the maximum.
//! `cargo xtask measure --what queue` builds and runs in release mode.

pub mod figures;
pub mod peer;

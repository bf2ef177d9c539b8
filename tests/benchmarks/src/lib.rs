//! Parts of the runtime measured next to their peers, in one run on one machine.
//!
//! Each comparison is its own program in `src/bin/`, and each peer its own folder in `go/`: a Go module whose
//! benchmarks carry the names of our workloads. What a program must know to measure and to print is here.
//!
//! Guarantees: everything is built before the first measurement begins; peers are measured in turn, round by round, so
//! that a machine that slows down slows all of them; what is printed is the median over the rounds, with the worst
//! next to it. `cargo xtask measure --what queue` builds and runs in release.

pub mod figures;
pub mod peer;

//! Reports of users of client-go, controller-runtime and kube-rs, and the tests of those projects, as tests of
//! Windlass.
//!
//! `README.md` lists the claims and the tests that show them; it is generated from `claims/` and from markers on tests
//! (see `page`). `docs/guarantees.md` lists the tests that prove each guarantee.
//!
//! Guarantees:
//! - The tests use only the public API of the crate `windlass` and its test API server.
//! - Time is virtual, and each test chooses its faults.
//! - A claim without a test or a reason fails `page`. So does a marker with an unknown id, and a test of this suite
//!   without a marker.
//!
//! A property that one crate shows alone is tested in that crate. This suite tests properties that involve several
//! crates.

mod caches;
mod changing;
mod clusters;
mod handlers;
mod logging;
mod page;
mod priorities;
mod reconciling;
mod selections;
mod sources;
mod world;

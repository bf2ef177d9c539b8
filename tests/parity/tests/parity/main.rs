//! What users of client-go, controller-runtime and kube-rs have reported for years, and what those projects' own tests
//! show, as properties of windlass. `docs/parity.md` says which test answers which row, and `docs/guarantees.md` which test
//! proves which guarantee.
//!
//! Guarantees:
//! - Only what a user of the crate `windlass` has is used here: its face, and the API server of its tests.
//! - Time is virtual, and what goes wrong is chosen by each test.
//! - A page that names a test that does not exist fails `page`, and so does a test of this suite that is not in
//!   `docs/parity.md`.
//!
//! Properties that one crate shows alone stand next to its code; here are those that show only where crates meet.

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

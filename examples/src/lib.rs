//! Controllers with their tests, as a user of windlass would write them.
//!
//! In the order in which they grow:
//!
//! 1. `src/bin/hello.rs`: a whole program. A ConfigMap has the labels of its Service.
//! 2. [`indexes`]: Deployments are restarted when a ConfigMap changes that they use.
//! 3. [`rack_labels`]: polls an inventory that does not tell when something changes.
//! 4. [`sites`]: its own kind, children, a finalizer and conditions.
//! 5. [`several_kinds`]: its own kind, what it owns, what a finalizer guards, and a status that tells.
//!    `src/bin/sites.rs` runs it as an operator that answers `windlass explain`.
//!
//! [`node_count`] is a runnable: work next to the controllers, without a queue.
//!
//! And one controller twice, for `docs/testing.md`: it gives a disk to every Service that asks for one. [`leaky_disks`]
//! does so in two writes, as one would at first, and its test finds what happens when the process dies between them.
//! [`fixed_disks`] is the same controller, repaired, and its test shows that it is.

pub mod fixed_disks;
pub mod indexes;
pub mod leaky_disks;
pub mod node_count;
pub mod rack_labels;
pub mod several_kinds;
pub mod sites;

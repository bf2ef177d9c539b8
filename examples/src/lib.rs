//! Example controllers with their tests, as users of windlass would write them.
//!
//! Ordered by complexity:
//!
//! 1. `src/bin/hello.rs`: a complete program. Copies the labels of each Service to a ConfigMap.
//! 2. [`indexes`]: restarts Deployments when a ConfigMap that they use changes.
//! 3. [`rack_labels`]: polls an inventory that sends no change notifications.
//! 4. [`several_kinds`]: a custom resource with owned children, a finalizer for an entry in another namespace, and a
//!    status. `src/bin/sites.rs` runs it as an operator that answers `windlass explain`.
//! 5. [`lamps`]: a custom resource in two versions, with webhooks that convert, default and validate it.
//!    `src/bin/lamps.rs` runs it as an operator.
//!
//! `templates/operator` is a complete operator with a chart: a custom resource with owned children, a finalizer,
//! conditions and a webhook.
//!
//! [`node_count`] is a runnable: work next to the controllers, without a queue.
//!
//! `docs/testing.md` uses two versions of one controller that provides a disk for each Service that requests one.
//! [`leaky_disks`] needs two writes, and its tests find the bug that appears when the process dies between them.
//! [`fixed_disks`] is the fixed version.

pub mod fixed_disks;
pub mod indexes;
pub mod lamps;
pub mod leaky_disks;
pub mod node_count;
pub mod rack_labels;
pub mod several_kinds;

//! Cases of upstream's unit tests, and of the plans.

mod events;
mod fixtures;
mod placement;
mod planning;
mod refresh;
mod revisions;
mod rollouts;
mod status;
mod surge;
mod templates;

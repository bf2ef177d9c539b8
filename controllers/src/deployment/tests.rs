//! Cases of upstream's unit tests, and of the plan.

mod annotations;
mod fixtures;
mod planning;
mod progress;
mod scaling;
mod templates;

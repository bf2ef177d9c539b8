//! The charts in `deploy/charts/` and `examples/charts/`: rendered by Helm, and installed on a real control plane.

mod alerts;
mod cases;
mod cluster;
mod generated;
mod lifecycle;
mod monitoring;
mod rendering;
mod validation;

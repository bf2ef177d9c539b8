//! The serving certificates of webhooks, issued and rotated by the replicas.

pub(crate) mod bundle;
pub(crate) mod issue;
pub(crate) mod rotation;
pub(crate) mod state;

//! Whole controllers against a small API server in the process, in virtual time.

mod api;
mod declarations;
mod endpoints;
mod replicas;
mod world;

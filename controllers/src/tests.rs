//! Tests of whole controllers with an API server in the process, in virtual time.

mod declarations;
mod deployments;
mod endpoints;
mod replicas;
mod world;

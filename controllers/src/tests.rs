//! Tests of whole controllers with an API server in the process, in virtual time.

mod declarations;
mod endpoints;
mod replicas;
mod world;

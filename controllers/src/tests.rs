//! Tests of whole controllers with an API server in the process, in virtual time.

mod accounts;
mod daemonsets;
mod declarations;
mod deployments;
mod endpoints;
mod podgc;
mod replicas;
mod root_ca;
mod statefulsets;
mod ttl;
mod world;

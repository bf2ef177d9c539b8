//! The controllers of namespaces and nodes on a real control plane without kube-controller-manager: upstream's
//! integration scenarios, the same script by upstream's controllers and by Windlass, and one after the other on the
//! same objects.

mod differential;
mod objects;
mod pods;
mod scenarios;
mod script;
mod swap;

//! Starts real Kubernetes control planes for tests and experiments.
//!
//! A [`ControlPlane`] consists of etcd, kube-apiserver, the upstream controllers that other controllers depend on, the
//! scheduler, and kwok as a simulator of kubelets. The binaries are the original ones, built from source on first use.
//! A [`ManagerProcess`] is the project's own binary as a separate process.
//!
//! # Guarantees
//! - No process outlives the process that started it, even after `SIGKILL`.
//! - Servers listen on the loopback interface or on a socket in a private folder. Control planes share no ports, data
//!   or keys, so any number of them can run concurrently.
//! - A started control plane is ready: the API server responds, the `default` namespace has its ServiceAccount, and the
//!   requested nodes accept pods.
//! - Logs are removed with the control plane, unless the thread was panicking, [`ControlPlane::keep_logs`] was called,
//!   or `WINDLASS_KEEP_LOGS` is set; then their folder is printed.
//!
//! # Limitations
//! The harness builds the control plane and Helm, for which it needs Go, and downloads Prometheus. It needs no
//! container runtime and supports only Linux.

mod assets;
mod components;
mod control_plane;
mod layout;
mod logs;
mod manager;
mod nodes;
mod options;
mod pki;
mod ports;
mod process;

pub use assets::{Assets, Binary, Prometheus, helm, installed, prometheus};
pub use control_plane::ControlPlane;
pub use manager::{ManagerProcess, WORKLOAD_CONTROLLERS};
pub use options::{ControlPlaneOptions, SUPPORTING_CONTROLLERS};
pub use ports::Port;
pub use process::Process;

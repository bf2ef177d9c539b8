//! Starts real Kubernetes control planes, for tests and for trying out.
//!
//! A [`ControlPlane`] is etcd, kube-apiserver, those of upstream's controllers that other controllers lean
//! on, the scheduler, and kwok playing the kubelets: the true binaries, built from source on first
//! use. A [`ManagerProcess`] is our own binary next to them, as a process like any other.
//!
//! # Guarantees
//! - Nothing outlives the process that started it, however that process ends, `SIGKILL` included.
//! - Everything listens on loopback or on a socket in a private folder. Planes never share ports,
//!   data or keys, so any number of them runs side by side.
//! - A plane handed out is ready: the API server answers, the `default` namespace has its service
//!   account, the nodes asked for take pods.
//! - Logs are removed with the plane, unless the thread was panicking, [`ControlPlane::keep_logs`] was
//!   called, or `WINDLASS_KEEP_LOGS` is set; then their folder is printed.
//!
//! # What it does not do
//! It downloads no binaries and needs no container runtime: only Go, and only once. It runs on
//! Linux alone.

mod assets;
mod components;
mod layout;
mod logs;
mod manager;
mod nodes;
mod options;
mod pki;
mod plane;
mod ports;
mod process;

pub use assets::{Assets, Binary};
pub use manager::ManagerProcess;
pub use options::{ControlPlaneOptions, SUPPORTING_CONTROLLERS};
pub use plane::ControlPlane;
pub use process::Process;

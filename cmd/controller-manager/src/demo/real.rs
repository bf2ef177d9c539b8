//! The demo on a real control plane, which the project builds from source: a chore of its checkout.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::arguments::Arguments;

/// The most pods and nodes the chore takes.
const MOST: u32 = 100;

/// Runs the chore in place of this demo, and waits for it. Ctrl-C reaches it as it reaches this process.
///
/// # Errors
/// When an argument means nothing there, when it cannot be started, or when it fails.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { scale, nodes, faults, duration, kubeconfig_out, port, state, plain: _, control_plane: _ } =
        arguments;
    let in_process_alone = [
        ("--faults", *faults),
        ("--duration", duration.is_some()),
        ("--kubeconfig-out", kubeconfig_out.is_some()),
        ("--port", *port != 0),
        ("--state", state.is_some()),
    ];
    for (flag, given) in in_process_alone {
        ensure!(!given, "{flag} means nothing with --control-plane real; leave it out");
    }
    ensure!(
        (1..=MOST).contains(scale),
        "--scale={scale}: the real control plane's demo takes 1 to {MOST} pods"
    );
    ensure!(*nodes <= MOST, "--nodes={nodes}: the real control plane's demo takes 1 to {MOST} nodes");
    let mut chore = Command::new("cargo");
    chore.args(["xtask", "demo", "--replicas", &scale.to_string(), "--nodes", &nodes.to_string()]);
    let status = chore.status().context(
        "cannot run `cargo xtask demo`, which builds a real control plane: it takes Rust and a checkout of windlass",
    )?;
    ensure!(status.success(), "`cargo xtask demo` ended with {status}");
    Ok(())
}

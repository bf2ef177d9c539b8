//! What must be built before anything can be shown: the control plane, once per user, and windlass.

use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use windlass_harness::Assets;

use super::screen::Screen;
use crate::workspace::{cargo, must};

/// Finding binaries that are there takes no longer than this.
const LOOKING: Duration = Duration::from_millis(500);

/// How often a build that lasts gives a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// The variable that names a windlass to take instead of building one. The harness reads it too.
const BINARY_VARIABLE: &str = "WINDLASS_BIN";

/// Builds what is missing; blocks the thread, for minutes the first time.
///
/// # Errors
/// When something cannot be built, or nobody takes the progress.
pub(super) fn build<W: Write>(screen: &mut Screen<W>) -> Result<Assets> {
    let assets = build_control_plane(screen)?;
    build_windlass(screen)?;
    Ok(assets)
}

fn build_control_plane<W: Write>(screen: &mut Screen<W>) -> Result<Assets> {
    let (sender, receiver) = mpsc::channel();
    // Nobody receives when writing has failed meanwhile; then the process ends.
    thread::spawn(move || drop(sender.send(Assets::ensure())));
    let started = Instant::now();
    let mut patience = LOOKING;
    loop {
        match receiver.recv_timeout(patience) {
            Ok(assets) => return assets.context("building the control plane"),
            Err(RecvTimeoutError::Disconnected) => bail!("building the control plane broke off"),
            Err(RecvTimeoutError::Timeout) if patience == LOOKING => {
                screen.say("Building the control plane: about four minutes on two cores, once.")?;
                screen.say("    etcd, kube-apiserver, kubectl and the rest are compiled from source,")?;
                screen.say("    as nothing is downloaded ready-made. They stay in your cache folder.")?;
            }
            Err(RecvTimeoutError::Timeout) => {
                screen.say(&format!("    still building, for {} s now", started.elapsed().as_secs()))?;
            }
        }
        patience = SIGN_OF_LIFE;
    }
}

/// In the development profile: this very command has just been built in it, and shares nearly all of
/// its dependencies with windlass, so that the first run waits for little more than our own crates.
fn build_windlass<W: Write>(screen: &mut Screen<W>) -> Result<()> {
    if let Some(binary) = std::env::var_os(BINARY_VARIABLE).map(PathBuf::from) {
        ensure!(binary.is_file(), "{BINARY_VARIABLE} names {}, which is not a file", binary.display());
        screen.say(&format!("Taking the windlass that {BINARY_VARIABLE} names: {}.", binary.display()))?;
        return Ok(());
    }
    screen.say("Building windlass, in the development profile: quick to build.")?;
    must(cargo().args(["build", "--locked", "--package", "windlass-controller-manager"]))
        .context("building windlass")
}

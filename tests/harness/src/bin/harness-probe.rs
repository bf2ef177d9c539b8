//! Helper process of the harness tests, which can be killed or run in a modified environment.
//!
//! - `hold [controller]...` starts a control plane, with other upstream controllers if given, prints its log folder and
//!   `ready`, and waits.
//! - `assets` finds or builds the binaries and prints their folder.

use std::process::ExitCode;

use windlass_harness::{Assets, ControlPlane, ControlPlaneOptions};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("hold") => hold(&arguments[1..]).await,
        Some("assets") => Assets::ensure().map(|assets| print(&assets.cache().display().to_string())),
        _ => Err(anyhow::anyhow!("usage: harness-probe hold [controller]... | assets")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn hold(controllers: &[String]) -> anyhow::Result<()> {
    let mut options = ControlPlaneOptions::default().nodes(1);
    if !controllers.is_empty() {
        options = options.upstream_controllers(controllers);
    }
    let plane = ControlPlane::start(options).await?;
    print(&plane.logs_dir().display().to_string());
    print("ready");
    std::future::pending().await
}

#[allow(clippy::print_stdout)]
fn print(line: &str) {
    println!("{line}");
}

#[allow(clippy::print_stderr)]
fn complain(line: &str) {
    eprintln!("{line}");
}

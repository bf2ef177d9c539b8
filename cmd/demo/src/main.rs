//! `cargo demo`: a small cluster with running windlass controllers, to observe and to try.
//!
//! By default everything runs in this process: an API server on loopback, nodes that run no containers, and all
//! built-in controllers. With `--control-plane real` the controllers run against etcd and kube-apiserver, built from
//! source. On a terminal the demo redraws a screen; other output has one line for each change.
//!
//! Guarantees: no process and no temporary file is left after the exit; the first Ctrl-C stops gracefully, the second
//! immediately; the exit code is 0 after a graceful stop, also if standard output is closed.

mod arguments;
mod cluster;
mod control_plane;
mod fault_plan;
mod last_actions;
mod observed;
mod panel;
mod picture;
mod render;
mod running;
mod screen;
mod workload;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime::Builder;
use windlass::client::one_line;
use windlass::env::{Env, Instant};
use windlass::manager::ShutdownSignals;

use self::arguments::{Arguments, ControlPlaneKind};
use self::cluster::Cluster;
use self::observed::ClusterSnapshot;
use self::screen::{Key, Screen};

/// Minimum delay between two updates of the screen.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Ratio of the delay to the duration of the update before it, which limits CPU usage with many pods.
const REST: u32 = 4;

fn main() -> ExitCode {
    let arguments = Arguments::of(std::env::args_os().skip(1)).unwrap_or_else(|message| message.exit());
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit code reports the same if stderr is closed.
            let _ = writeln!(io::stderr(), "windlass-demo: {}", one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Starts all parts, displays them until the stop, and stops them.
fn run(arguments: &Arguments) -> Result<()> {
    arguments.validate()?;
    let env = Env::system("demo");
    let begun = env.now();
    if arguments.control_plane == ControlPlaneKind::Real {
        // No signal handler is installed yet: Ctrl-C terminates this process and its compilers.
        control_plane::build()?;
    }
    let on_terminal = io::stdout().is_terminal() && !arguments.plain;
    screen::quieten(on_terminal);
    let runtime = Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
    let outcome = runtime.block_on(play(arguments, &env, begun, on_terminal));
    runtime.shutdown_background();
    outcome
}

async fn play(arguments: &Arguments, env: &Env, begun: Instant, on_terminal: bool) -> Result<()> {
    let signals = ShutdownSignals::from_process(env).context("cannot install signal handlers")?;
    let started = tokio::select! {
        biased;
        // The processes of a real control plane are stopped on drop, and tasks with the runtime.
        () = signals.draining() => return Ok(()),
        started = Cluster::start(env, arguments) => started,
    };
    let cluster = started?;
    let mut screen = Screen::open(on_terminal, env, begun)?;
    let shown = if_read(show(env, arguments, &cluster, &mut screen, &signals).await);
    let drawn = arguments.picture.as_deref().map_or(Ok(()), |path| screen.write_picture(path));
    // Standard output might be closed: the cluster is stopped and its state kept nevertheless.
    let closed = if_read(screen.close());
    if shown.is_err() {
        cluster.keep_logs();
    }
    let ended = tokio::select! {
        biased;
        ended = cluster.end() => ended,
        () = signals.aborted() => Err(anyhow!("interrupted again: all parts were aborted")),
    };
    let printed = if_read(screen.print_line("Everything has ended."));
    match (shown, ended) {
        // A part that stopped unexpectedly reports the reason when it is stopped.
        (Err(shown), Err(ended)) => Err(ended.context(shown)),
        (shown, ended) => shown.and(ended).and(closed).and(drawn).and(printed),
    }
}

/// Converts a closed standard output into success.
fn if_read(outcome: Result<()>) -> Result<()> {
    outcome.or_else(|error| if is_unread(&error) { Ok(()) } else { Err(error) })
}

/// Returns whether the error means that standard output is closed.
fn is_unread(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Applies the workload and displays changes until the stop.
async fn show(
    env: &Env,
    arguments: &Arguments,
    cluster: &Cluster,
    screen: &mut Screen,
    signals: &ShutdownSignals,
) -> Result<()> {
    screen.greet(&cluster.address(), &invitation(cluster, arguments))?;
    let end = arguments.duration.map(|duration| env.now() + duration);
    let client = cluster.client();
    let (mut stopping, mut applied) = (pin!(signals.draining()), false);
    let mut observed = ClusterSnapshot::default();
    let mut applying = pin!(workload::apply(&client, arguments.scale));
    loop {
        let began = env.now();
        cluster.must_run()?;
        observed = cluster.observe(observed);
        screen.show(&observed, &cluster.panel())?;
        if screen.key()? == Some(Key::Quit) {
            return Ok(());
        }
        if end.is_some_and(|end| env.now() >= end) {
            return Ok(());
        }
        let pause = REDRAW_INTERVAL.max(env.now().saturating_duration_since(began) * REST);
        tokio::select! {
            biased;
            () = &mut stopping => return Ok(()),
            outcome = &mut applying, if !applied => {
                outcome.context("cannot create the sample workload")?;
                applied = true;
            }
            () = env.sleep(pause) => {}
        }
    }
}

/// Returns commands to try, quoted for a shell.
fn invitation(cluster: &Cluster, arguments: &Arguments) -> Vec<String> {
    let mut lines = vec![format!("export KUBECONFIG={}", quoted(cluster.kubeconfig()))];
    lines.extend(cluster.kubectl().map(|kubectl| format!("alias kubectl={}", quoted(kubectl))));
    if arguments.scale > 0 {
        lines.push("kubectl get deployments,replicasets,pods,endpoints".to_owned());
        let name = workload::first_name(arguments.scale);
        lines.push(format!("kubectl scale deployment {name} --replicas 20"));
        lines.push(format!("kubectl rollout restart deployment {name}"));
    } else {
        lines.push("kubectl create namespace shop".to_owned());
        lines.push("kubectl get nodes,all --all-namespaces".to_owned());
    }
    lines
}

/// Returns a path quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_quoted_when_a_shell_would_split_it() {
        assert_eq!(quoted(Path::new("/a/windlass-demo-1/kubeconfig")), "/a/windlass-demo-1/kubeconfig");
        assert_eq!(quoted(Path::new("/my files/it's")), r"'/my files/it'\''s'");
    }
}

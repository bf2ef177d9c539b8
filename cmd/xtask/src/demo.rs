//! `cargo xtask demo`: windlass at work on a real control plane, from nothing to Ctrl-C.
//!
//! Guarantees: whatever is missing is built first; nothing is left running or lying about, however
//! the demo ends; asked to end, by SIGINT or SIGTERM, it ends windlass as a cluster would and says
//! how that went; asked again, it ends everything at once.

mod observed;
mod render;
mod screen;
mod set_up;
mod tour;

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_harness::{Assets, Binary, Manager, Plane, PlaneOptions};

use observed::Eye;
use screen::Screen;
use tour::{Tour, must_run};

/// How long windlass may take to be ready and to lead; it takes about a second.
const STARTING: Duration = Duration::from_secs(60);

/// How long windlass may take to end: its own limit is ten seconds for the controllers, and the lease
/// is given back after.
const ENDING: Duration = Duration::from_secs(30);

/// How often what is awaited is looked at.
const POLL: Duration = Duration::from_millis(50);

/// The lease for which replicas of windlass compete, and its namespace.
const LEASE: (&str, &str) = ("windlass", "kube-system");

/// What to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many pods the ReplicaSet has, from 1 to 100.
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=100))]
    replicas: u16,

    /// How many nodes kwok plays, from 1 to 100.
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: u16,

    /// End after the tour, instead of serving until Ctrl-C.
    #[arg(long)]
    once: bool,
}

/// Builds, starts, shows, serves and ends.
///
/// # Errors
/// When something cannot be built or started, does not happen in time, or does not end as it should;
/// with `--once` also when interrupted.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut screen = Screen::stdout();
    // No signal is handled yet: Ctrl-C ends this process and its compilers alike.
    let assets = set_up::build(&mut screen)?;
    play(arguments, &mut screen, &assets)
}

#[tokio::main]
async fn play<W: Write>(arguments: &Arguments, screen: &mut Screen<W>, assets: &Assets) -> Result<()> {
    let mut interruption = Interruption::listen()?;
    let started = tokio::select! {
        biased;
        () = interruption.next() => None,
        started = start(arguments, screen) => Some(started?),
    };
    let Some((plane, windlass)) = started else {
        screen.say("Interrupted before everything was running; nothing is left of it.")?;
        return arguments.interrupted();
    };
    let outcome = tokio::select! {
        biased;
        () = interruption.next() => arguments.interrupted(),
        outcome = show(arguments, screen, &plane, &windlass, assets) => {
            outcome.inspect_err(|error| if !is_unread(error) { plane.keep_logs() })
        }
    };
    screen.release();
    let ended = tokio::select! {
        biased;
        () = interruption.next() => Err(anyhow!("interrupted again: everything was killed")),
        ended = end(screen, plane, windlass) => ended,
    };
    outcome.and(ended)
}

/// Starts everything and returns when windlass leads. Dropped before that, it leaves nothing behind.
async fn start<W: Write>(arguments: &Arguments, screen: &mut Screen<W>) -> Result<(Plane, Manager)> {
    screen.say("Starting a control plane: the real one, on nodes that kwok plays.")?;
    let plane = Plane::start(PlaneOptions::default().nodes(arguments.nodes.into())).await?;
    screen.say("It is ready. Nothing on it cares for ReplicaSets and Endpoints.")?;
    screen.say("Starting windlass, which will.")?;
    let windlass = Manager::start(&plane, &[]).await?;
    let identity = await_leadership(&plane, &windlass).await.inspect_err(|_| plane.keep_logs())?;
    screen.say(&format!("windlass is ready and leads (process {}), as", windlass.pid()))?;
    screen.say(&format!("    {identity}."))?;
    Ok((plane, windlass))
}

/// The demo proper; returns after the tour if that is all, else never without an error.
async fn show<W: Write>(
    arguments: &Arguments,
    screen: &mut Screen<W>,
    plane: &Plane,
    windlass: &Manager,
    assets: &Assets,
) -> Result<()> {
    let eye = Eye::new(plane.client().await);
    let mut tour = Tour { plane, windlass, screen, eye, replicas: arguments.replicas.into() };
    tour.run().await?;
    if arguments.once {
        return Ok(());
    }
    tour.screen.print(&invitation(plane, windlass, assets))?;
    tour.serve().await
}

/// Waits until windlass is ready and holds the lease; returns who it is there.
async fn await_leadership(plane: &Plane, windlass: &Manager) -> Result<String> {
    let (name, namespace) = LEASE;
    let leases: Api<Lease> = Api::namespaced(plane.client().await, namespace);
    let started = Instant::now();
    loop {
        must_run(windlass)?;
        // Until it listens there is no answer, which is as good as "not yet".
        let is_ready = matches!(windlass.get("/readyz").await, Ok((200, _)));
        let lease = leases.get_opt(name).await.context("looking at the lease")?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty());
        match holder {
            Some(holder) if is_ready => return Ok(holder),
            holder => ensure!(
                started.elapsed() < STARTING,
                "windlass does not lead after {STARTING:?}; ready: {is_ready}, holder of the lease: {}",
                holder.as_deref().unwrap_or("none")
            ),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What to try, ready to be pasted.
fn invitation(plane: &Plane, windlass: &Manager, assets: &Assets) -> String {
    format!(
        "
All of it keeps running, and what happens is shown below. In another terminal:

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}

  kubectl get replicasets,pods,services --output wide
  kubectl scale replicaset web --replicas 20
  kubectl delete pods --selector app=web
  kubectl get events --watch
  kubectl get lease windlass --namespace kube-system --output yaml
  curl http://{admin}/metrics
  tail -f {log}

Ctrl-C ends everything.",
        kubeconfig = plane.kubeconfig_path().display(),
        kubectl = assets.path(Binary::Kubectl).display(),
        admin = windlass.admin_address(),
        log = windlass.log().display(),
    )
}

/// Ends windlass, then the plane. Whether anybody still reads about it changes nothing.
async fn end<W: Write>(screen: &mut Screen<W>, plane: Plane, windlass: Manager) -> Result<()> {
    let _ = screen.print("");
    let mut say = |line: &str| drop(screen.say(line));
    say("Ending windlass, by SIGTERM.");
    let asked = Instant::now();
    windlass.terminate();
    let windlass_ended = match windlass.wait_exit(ENDING).await {
        Ok(status) => {
            say(&format!("windlass ended after {} ms, with {status}.", asked.elapsed().as_millis()));
            if status.success() { Ok(()) } else { Err(anyhow!("windlass ended with {status}")) }
        }
        Err(error) => Err(error),
    };
    if windlass_ended.is_err() {
        plane.keep_logs();
    }
    drop(windlass);
    plane.stop().await?;
    say("The control plane has ended too.");
    windlass_ended
}

impl Arguments {
    /// What an interruption means: for a demo that serves, the end that was foreseen.
    fn interrupted(&self) -> Result<()> {
        ensure!(!self.once, "interrupted before the tour was over");
        Ok(())
    }
}

/// Whether the error is that nobody reads standard output any more.
fn is_unread(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The wish of whoever started the demo that it end.
struct Interruption {
    interrupted: Signal,
    terminated: Signal,
}

impl Interruption {
    fn listen() -> io::Result<Self> {
        let (interrupted, terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupted, terminated })
    }

    /// The next signal of either kind.
    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_tour_is_a_failure_only_for_who_wanted_just_that() {
        let arguments = |once| Arguments { replicas: 5, nodes: 3, once };
        assert!(arguments(false).interrupted().is_ok());
        assert!(arguments(true).interrupted().is_err());
    }

    #[test]
    fn a_closed_pipe_is_told_from_what_is_worth_keeping_logs_for() {
        assert!(is_unread(&io::Error::from(ErrorKind::BrokenPipe).into()));
        assert!(!is_unread(&anyhow!("windlass ended")));
    }
}

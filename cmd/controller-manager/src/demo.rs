//! `windlass demo`: a cluster in this process, with windlass at work on it, to look at and to play with.
//!
//! An API server on loopback, nodes that run nothing, all controllers of this binary, a sample workload, and a live
//! view: on a terminal a screen that is redrawn, elsewhere one line for each change.
//!
//! Guarantees: nothing but this process runs, and nothing of it is left when it ends; the first Ctrl-C ends it in
//! order, the second at once.

mod arguments;
mod cluster;
mod deeds;
mod observed;
mod panel;
mod real;
mod render;
mod screen;
mod trouble;
mod workload;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime::Builder;
use windlass::env::{Env, Instant};
use windlass::manager::ShutdownSignals;

use self::arguments::{Arguments, ControlPlane};
use self::cluster::Cluster;
use self::observed::Observed;
use self::screen::{Key, Screen};
use crate::args::Stop;

/// The word after the program's name that asks for the demo.
pub(crate) const NAME: &str = "demo";

/// The pause between two looks, at least: quicker than eyes, slower than what there is to see.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How many times longer than a look the pause after it lasts: watching must not be what keeps the machine busy,
/// however many pods there are.
const REST: u32 = 4;

/// A demo that is ready to run.
#[derive(Debug)]
pub(crate) struct Demo {
    arguments: Arguments,
    env: Env,
    begun: Instant,
}

impl Demo {
    /// From the words after `demo`.
    ///
    /// # Errors
    /// When there is nothing to run: help was asked for, or an argument cannot be used.
    pub(crate) fn from_args(words: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let env = Env::system("demo");
        let begun = env.now();
        Ok(Self { arguments: arguments::parse(words)?, env, begun })
    }

    /// Starts everything, shows it until asked to end, and ends it.
    ///
    /// # Errors
    /// When something cannot be started, breaks off by itself, or does not end as it should.
    pub(crate) fn run(self) -> Result<()> {
        if self.arguments.control_plane == ControlPlane::Real {
            return real::run(&self.arguments);
        }
        let on_terminal = std::io::stdout().is_terminal() && !self.arguments.plain;
        screen::quieten(on_terminal);
        let runtime = Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
        let outcome = runtime.block_on(self.play(on_terminal));
        runtime.shutdown_background();
        // One line that holds the cause too: whoever reads it has nothing else.
        outcome.map_err(|error| anyhow!("{error:#}"))
    }

    async fn play(self, on_terminal: bool) -> Result<()> {
        let Self { arguments, env, begun } = self;
        let signals = ShutdownSignals::from_process(&env).context("cannot listen for signals")?;
        let cluster = Cluster::start(&env, &arguments).await?;
        let mut screen = Screen::open(on_terminal, &env, begun)?;
        let shown = show(&env, &arguments, &cluster, &mut screen, &signals).await;
        // Whether anybody still reads about it changes nothing: what runs is ended, and the state kept.
        let closed = screen.close();
        let ended = match shown {
            // The signal that asked for the end has been heard; the next one is the second.
            Ok(End::Signal) => unless_given_up(cluster.end(), signals.aborted()).await,
            Ok(End::Key | End::Over) | Err(_) => unless_given_up(cluster.end(), signals.draining()).await,
        };
        let told = screen.say("Everything has ended.");
        read(shown.map(drop)).and(ended).and(read(closed)).and(read(told))
    }
}

/// What a demo ends by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The user, at the keyboard of the screen.
    Key,
    /// A signal.
    Signal,
    /// Its own time being over.
    Over,
}

/// That nobody reads standard output any more is a way to end a demo, not a failure.
fn read(outcome: Result<()>) -> Result<()> {
    let is_unread = |error: &anyhow::Error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    outcome.or_else(|error| if is_unread(&error) { Ok(()) } else { Err(error) })
}

/// What ends first: `work`, or the wish that it be given up.
async fn unless_given_up(
    work: impl Future<Output = Result<()>>,
    given_up: impl Future<Output = ()>,
) -> Result<()> {
    tokio::select! {
        biased;
        outcome = work => outcome,
        () = given_up => Err(anyhow!("interrupted again: everything was cut off")),
    }
}

/// Applies the workload and shows what comes of it, until asked to end.
async fn show(
    env: &Env,
    arguments: &Arguments,
    cluster: &Cluster,
    screen: &mut Screen,
    signals: &ShutdownSignals,
) -> Result<End> {
    screen.greet(&cluster.address(), &invitation(cluster.kubeconfig(), arguments))?;
    let over = arguments.duration.map(|duration| env.now() + duration);
    let client = cluster.client();
    let (mut asked_to_end, mut applied) = (pin!(signals.draining()), false);
    let mut observed = Observed::default();
    let mut applying = pin!(workload::apply(&client, arguments.scale));
    loop {
        let began = env.now();
        cluster.must_run()?;
        observed = observed.renewed(cluster.storage())?;
        screen.show(&observed, &cluster.panel())?;
        if screen.key()? == Some(Key::Quit) {
            return Ok(End::Key);
        }
        if over.is_some_and(|over| env.now() >= over) {
            return Ok(End::Over);
        }
        let pause = LOOK_EVERY.max(env.now().saturating_duration_since(began) * REST);
        tokio::select! {
            biased;
            () = &mut asked_to_end => return Ok(End::Signal),
            outcome = &mut applying, if !applied => {
                outcome.context("creating the sample workload")?;
                applied = true;
            }
            () = env.sleep(pause) => {}
        }
    }
}

/// What to try, ready to be pasted.
fn invitation(kubeconfig: &Path, arguments: &Arguments) -> Vec<String> {
    let mut lines = vec![format!("export KUBECONFIG={}", kubeconfig.display())];
    if arguments.scale > 0 {
        lines.push("kubectl get replicasets,pods,endpoints".to_owned());
        lines.push(format!(
            "kubectl scale replicaset {} --replicas 20",
            workload::first_name(arguments.scale)
        ));
        lines.push("kubectl delete pods --all".to_owned());
    } else {
        lines.push("kubectl create namespace shop".to_owned());
        lines.push("kubectl get nodes,all --all-namespaces".to_owned());
    }
    lines
}

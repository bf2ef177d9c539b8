//! What the demo shows, in order, and then as long as it may: one kubectl command at a time, and what
//! comes of it.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use windlass_harness::{Manager, Plane};

use super::observed::{Eye, NAME, Observed};
use super::render::summary;
use super::screen::Screen;

/// The objects of the demo, as a user would write them.
const MANIFEST: &str = include_str!("web.yaml");

/// The manifest's own number of pods, as it is written there.
const MANIFEST_REPLICAS: &str = "replicas: 5";

/// The pause between two looks during a step, at least: what is to be seen is over in a second.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The pause between two looks while serving.
const GLANCE_EVERY: Duration = Duration::from_millis(250);

/// How many times longer than a look the pause after it lasts: watching must not be what keeps the
/// machine busy, however many pods there are.
const REST: u32 = 4;

/// How long one step may take: a hundred times what it takes, for machines that are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pause after a step for whoever reads along on a terminal.
const READING: Duration = Duration::from_secs(2);

/// The tour, with all it needs.
#[derive(Debug)]
pub(super) struct Tour<'a, W> {
    pub(super) plane: &'a Plane,
    pub(super) windlass: &'a Manager,
    pub(super) screen: &'a mut Screen<W>,
    pub(super) eye: Eye,
    pub(super) replicas: usize,
}

impl<W: Write> Tour<'_, W> {
    /// Goes through all steps.
    ///
    /// # Errors
    /// When one does not come to its end in two minutes, windlass ends, or nobody takes the output.
    pub(super) async fn run(&mut self) -> Result<()> {
        self.apply().await?;
        self.scale("2 of 4: scale up.", self.replicas * 2).await?;
        self.scale("3 of 4: scale down.", self.replicas).await?;
        self.delete_one().await
    }

    /// Shows whatever happens, until dropped.
    ///
    /// # Errors
    /// When windlass ends, the API server does not answer, or nobody takes the output.
    pub(super) async fn serve(&mut self) -> Result<()> {
        let Self { windlass, screen, eye, .. } = self;
        watch(windlass, screen, eye, GLANCE_EVERY, |_| false).await.map(drop)
    }

    async fn apply(&mut self) -> Result<()> {
        let manifest = manifest(self.replicas);
        // In the plane's own folder, which goes with it however this process ends.
        let path = self.plane.logs_dir().with_file_name("web.yaml");
        fs::write(&path, &manifest).with_context(|| format!("writing {}", path.display()))?;
        let file = path.to_string_lossy();
        self.screen.print(&format!("\n{}", indented(&manifest)))?;
        let replicas = self.replicas;
        let title = "1 of 4: apply this ReplicaSet and Service.";
        let apply = ["apply", "--filename", file.as_ref()];
        self.step(title, &apply, |observed| observed.has_settled_at(replicas)).await
    }

    async fn scale(&mut self, title: &str, to: usize) -> Result<()> {
        let replicas = to.to_string();
        let scale = ["scale", "replicaset", NAME, "--replicas", &replicas];
        self.step(title, &scale, |observed| observed.has_settled_at(to)).await
    }

    async fn delete_one(&mut self) -> Result<()> {
        let oldest = self.eye.look().await?.pods.into_iter().next();
        let victim = oldest.context("there is no pod to delete")?.name;
        let replicas = self.replicas;
        let replaced =
            |observed: &Observed| observed.pod(&victim).is_none() && observed.has_settled_at(replicas);
        self.step("4 of 4: delete a pod; another takes its place.", &["delete", "pod", &victim], replaced)
            .await
    }

    /// Runs one kubectl command and shows what happens until `reached` holds.
    async fn step(&mut self, title: &str, args: &[&str], reached: impl Fn(&Observed) -> bool) -> Result<()> {
        let Self { plane, windlass, screen, eye, .. } = self;
        screen.print("")?;
        screen.say(title)?;
        screen.say(&format!("$ kubectl {}", args.join(" ")))?;
        let started = Instant::now();
        let watching = async {
            match tokio::time::timeout(PATIENCE, watch(windlass, screen, eye, LOOK_EVERY, reached)).await {
                Ok(seen) => seen,
                Err(_) => bail!("not done after {PATIENCE:?}; there is: {}", summary(&eye.look().await?)),
            }
        };
        // Side by side: `kubectl delete` returns when what is worth seeing is over.
        let (_, seen) = tokio::try_join!(plane.kubectl(args), watching)?;
        screen.say(&format!("Done in {:.1} s: {}.", started.elapsed().as_secs_f64(), summary(&seen)))?;
        self.let_read().await
    }

    async fn let_read(&mut self) -> Result<()> {
        if !self.screen.is_terminal() {
            return Ok(());
        }
        match tokio::time::timeout(READING, self.serve()).await {
            Ok(broken_off) => broken_off,
            Err(_) => Ok(()),
        }
    }
}

/// Shows what is observed until `reached` holds of it; returns that.
async fn watch<W: Write>(
    windlass: &Manager,
    screen: &mut Screen<W>,
    eye: &Eye,
    pause: Duration,
    reached: impl Fn(&Observed) -> bool,
) -> Result<Observed> {
    loop {
        let started = Instant::now();
        let observed = eye.look().await?;
        screen.show(&observed)?;
        if reached(&observed) {
            return Ok(observed);
        }
        must_run(windlass)?;
        tokio::time::sleep(pause.max(started.elapsed() * REST)).await;
    }
}

/// Fails once windlass has ended.
pub(super) fn must_run(windlass: &Manager) -> Result<()> {
    let Some(status) = windlass.exited() else { return Ok(()) };
    let log = fs::read_to_string(windlass.log()).unwrap_or_default();
    match log.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => bail!("windlass ended by itself with {status}, saying: {line}"),
        None => bail!("windlass ended by itself with {status}, saying nothing"),
    }
}

fn manifest(replicas: usize) -> String {
    MANIFEST.replace(MANIFEST_REPLICAS, &format!("replicas: {replicas}"))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_asks_for_as_many_pods_as_the_command_line_does() {
        assert_eq!(MANIFEST.matches(MANIFEST_REPLICAS).count(), 1);
        assert!(manifest(7).contains("replicas: 7\n"));
        assert_eq!(manifest(5), MANIFEST);
    }

    #[test]
    fn the_manifest_has_the_objects_that_are_watched() {
        assert_eq!(MANIFEST.matches(&format!("\n  name: {NAME}\n")).count(), 2);
        assert_eq!(MANIFEST.matches(&format!("app: {NAME}\n")).count(), 3);
    }
}

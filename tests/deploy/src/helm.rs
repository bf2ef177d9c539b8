//! Helm as a process, with dedicated folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use windlass_harness::ControlPlane;

use crate::charts;

/// Timeout of a command. `--wait` has shorter timeouts.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Helm, and copies of the charts whose dependencies are resolved.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    folder: TempDir,
    kubeconfig: Option<PathBuf>,
}

/// A chart of this workspace, by the name of its folder.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Chart {
    /// The controller manager.
    Windlass,
    /// The operator of the template, which uses only the library chart.
    Operator,
    /// The operator that the tests install: the project in the folder that [`PROJECT`] names, or the template.
    Project,
}

/// The variable with the folder of a new project. The folder has the name of the project.
pub const PROJECT: &str = "WINDLASS_PROJECT";

fn project() -> Option<PathBuf> {
    std::env::var_os(PROJECT).map(PathBuf::from)
}

impl Chart {
    const ALL: [Self; 3] = [Self::Windlass, Self::Operator, Self::Project];

    /// Returns the name of the program and of the chart.
    ///
    /// # Panics
    /// If the folder of the project has no name, or a name that is not UTF-8.
    #[must_use]
    pub fn program(self) -> String {
        match (self, project()) {
            (Self::Windlass, _) => "windlass".to_owned(),
            (Self::Project, Some(folder)) => {
                let name = folder.file_name().and_then(|name| name.to_str());
                name.expect("the folder of the project has a name").to_owned()
            }
            (Self::Operator | Self::Project, _) => "site-operator".to_owned(),
        }
    }

    /// Returns the folder of the program and its chart.
    #[must_use]
    pub fn folder(self) -> PathBuf {
        match (self, project()) {
            (Self::Project, Some(folder)) => folder,
            _ => charts::root().join(self.path()),
        }
    }

    /// Returns the path of the folder, from which the dependencies of the chart are relative paths.
    fn path(self) -> PathBuf {
        match (self, project()) {
            (Self::Windlass, _) => "deploy/charts/windlass".into(),
            (Self::Project, Some(_)) => self.program().into(),
            (Self::Operator | Self::Project, _) => "templates/operator".into(),
        }
    }

    /// Returns the path of the chart in the folder.
    fn chart(self) -> &'static str {
        if self == Self::Windlass { "" } else { "chart" }
    }
}

/// The library chart, which the other charts find by a relative path.
const LIBRARY: &str = "deploy/charts/operator-base";

impl Helm {
    /// Finds or builds Helm, and copies the charts. Without a control plane, only commands without a cluster work.
    ///
    /// # Errors
    /// Returns an error if Helm cannot be built, or a dependency of a chart cannot be resolved.
    pub async fn new(plane: Option<&ControlPlane>) -> Result<Self> {
        let program = tokio::task::spawn_blocking(windlass_harness::helm).await??;
        let kubeconfig = plane.map(|plane| plane.kubeconfig_path().to_owned());
        let helm = Self { program, folder: tempfile::tempdir()?, kubeconfig };
        let root = charts::root();
        copy(&root.join(LIBRARY), &helm.folder.path().join(LIBRARY))?;
        let mut built = BTreeSet::new();
        for chart in Chart::ALL {
            let path = helm.path(chart)?;
            // The project can be the template.
            if built.insert(path.clone()) {
                copy(&chart.folder().join(chart.chart()), Path::new(&path))?;
                helm.run(&["dependency", "build", &path]).await?;
            }
        }
        Ok(helm)
    }

    /// Returns the path of the copy of a chart.
    ///
    /// # Errors
    /// Returns an error if the temporary folder has a name that is not UTF-8.
    pub fn path(&self, chart: Chart) -> Result<String> {
        let path = self.folder.path().join(chart.path()).join(chart.chart());
        Ok(path.to_str().context("the temporary folder is not UTF-8")?.to_owned())
    }

    /// Runs Helm with these arguments and returns its standard output.
    ///
    /// # Errors
    /// Returns an error with Helm's message if it fails, and also if it prints a warning.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments).await?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "helm {}: {}", arguments.join(" "), errors.trim());
        ensure!(!errors.to_lowercase().contains("warn"), "helm {} warns: {errors}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a command such as `template` or `install` with a release, a chart, a namespace and values.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Self::run).
    pub async fn release(
        &self,
        command: &str,
        (release, chart, namespace): (&str, Chart, &str),
        values: &str,
        arguments: &[&str],
    ) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(self.folder.path())?;
        std::fs::write(file.path(), values)?;
        let file = file.path().to_str().context("the temporary folder is not UTF-8")?;
        let chart = self.path(chart)?;
        let words = [command, release, &*chart, "--namespace", namespace, "--values", file];
        self.run(&[&words[..], arguments].concat()).await
    }

    /// Returns the error message of a command that must fail.
    ///
    /// # Errors
    /// Returns an error if the command succeeds.
    pub async fn rejection(&self, chart: Chart, values: &str) -> Result<String> {
        match self.release("template", ("release", chart, "default"), values, &[]).await {
            Ok(_) => bail!("helm accepts {values}"),
            Err(error) => Ok(error.to_string()),
        }
    }

    async fn output(&self, arguments: &[&str]) -> Result<Output> {
        let home = self.folder.path();
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("HOME", home).stdin(Stdio::null()).kill_on_drop(true);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        Ok(output.with_context(|| format!("helm {arguments:?} did not exit within {TIMEOUT:?}"))??)
    }
}

/// Copies a folder without the dependencies that Helm resolves.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == "charts" => {}
            true => copy(&entry.path(), &target)?,
            false => drop(std::fs::copy(entry.path(), &target)?),
        }
    }
    Ok(())
}

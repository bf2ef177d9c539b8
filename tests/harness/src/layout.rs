//! Where a plane keeps its files: two private folders, both gone with the plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A folder in memory, on most Linux machines.
const SHARED_MEMORY: &str = "/dev/shm";

/// The folders of one plane. Nothing is removed on drop: the janitor does that, which outlives us.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    run: PathBuf,
    data: PathBuf,
}

impl Layout {
    /// Makes the folders of a new plane, readable by this user alone.
    pub(crate) fn create() -> anyhow::Result<Self> {
        let run = private_folder(&std::env::temp_dir())?;
        let data = match private_folder(Path::new(SHARED_MEMORY)) {
            Ok(folder) => folder,
            // No tmpfs here: slower, and as good.
            Err(_) => private_folder(&std::env::temp_dir())?,
        };
        for folder in [run.join("logs"), run.join("pki"), run.join("kubeconfigs"), run.join("home")] {
            fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        Ok(Self { run, data })
    }

    /// Keys, kubeconfigs and logs.
    pub(crate) fn run(&self) -> &Path {
        &self.run
    }

    /// etcd's data and sockets, in memory where there is a tmpfs.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A file among the keys and certificates.
    pub(crate) fn pki(&self, name: &str) -> PathBuf {
        self.run.join("pki").join(name)
    }

    /// The kubeconfig of an identity.
    pub(crate) fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.run.join("kubeconfigs").join(identity)
    }

    /// The folder of all logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.run.join("logs")
    }

    /// The log of a process.
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// What the plane's programs take for their user's home: no setting of the real one reaches them.
    pub(crate) fn home(&self) -> PathBuf {
        self.run.join("home")
    }

    /// The socket on which etcd serves the API server.
    pub(crate) fn etcd_socket(&self) -> PathBuf {
        self.data.join("etcd.sock")
    }
}

fn private_folder(parent: &Path) -> anyhow::Result<PathBuf> {
    let folder = tempfile::Builder::new()
        .prefix("windlass-")
        .tempdir_in(parent)
        .with_context(|| format!("creating a folder in {}", parent.display()))?;
    Ok(folder.keep())
}

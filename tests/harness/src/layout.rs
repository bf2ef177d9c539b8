//! Folders of a control plane: two private folders that are removed with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A folder in memory on most Linux machines.
const SHARED_MEMORY: &str = "/dev/shm";

/// Folders of one control plane. Dropping removes nothing: the janitor process does, because it outlives this process.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    run: PathBuf,
    data: PathBuf,
}

impl Layout {
    /// Creates the folders of a new control plane, accessible only to this user.
    pub(crate) fn create() -> anyhow::Result<Self> {
        let run = private_folder(&std::env::temp_dir())?;
        let data = match private_folder(Path::new(SHARED_MEMORY)) {
            Ok(folder) => folder,
            // Without tmpfs etcd is slower, but works.
            Err(_) => private_folder(&std::env::temp_dir())?,
        };
        for folder in [run.join("logs"), run.join("pki"), run.join("kubeconfigs"), run.join("home")] {
            fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        Ok(Self { run, data })
    }

    /// Returns the folder of keys, kubeconfigs and logs.
    pub(crate) fn run(&self) -> &Path {
        &self.run
    }

    /// Returns the folder of etcd's data and sockets, in memory if there is a tmpfs.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the path of a key or certificate.
    pub(crate) fn pki(&self, name: &str) -> PathBuf {
        self.run.join("pki").join(name)
    }

    /// Returns the path of an identity's kubeconfig.
    pub(crate) fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.run.join("kubeconfigs").join(identity)
    }

    /// Returns the folder of all logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.run.join("logs")
    }

    /// Returns the path of a process's log.
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// Returns the home folder of the programs, so that settings of the real home do not affect them.
    pub(crate) fn home(&self) -> PathBuf {
        self.run.join("home")
    }

    /// Returns the path of the socket on which etcd serves the API server.
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

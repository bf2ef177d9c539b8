//! `cargo xtask describe`: the tables in `simulation/schema/src/tables`, made from upstream's own material.
//!
//! Upstream's published descriptions say which resources and types there are; a small Go program that links upstream's
//! scheme says what they do not: defaults, enumerations, and which fields are written when they are empty. What comes
//! out is a function of the Kubernetes version that `tests/control-plane/go.mod` names, and of nothing else.

mod resources;
mod scheme;
mod types;
mod wire;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::workspace::root;

/// The arguments of `cargo xtask describe`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if the committed tables are not what would be written.
    #[arg(long)]
    check: bool,
}

/// A file of the tables, with its text.
struct Table {
    /// Its path from the folder of the schemas' tables.
    name: &'static str,
    text: String,
}

/// Makes the tables, or looks whether they are current.
///
/// # Errors
/// If Go or upstream's material cannot be had, if either says something that the tables have no words for, or if the
/// committed tables turn out to be stale.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = root().join("simulation/schema/src/tables");
    for table in tables()? {
        let path = folder.join(table.name);
        if !arguments.check {
            std::fs::write(&path, &table.text).with_context(|| format!("writing {}", path.display()))?;
            println!("{} ({} bytes)", path.display(), table.text.len());
            continue;
        }
        let committed =
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if committed != table.text {
            bail!("{} is stale: run `cargo xtask describe` and commit what it writes", path.display());
        }
        println!("{} is current", path.display());
    }
    Ok(())
}

fn tables() -> Result<Vec<Table>> {
    let upstream = Upstream::find()?;
    let resources = resources::read(&upstream)?;
    let facts = scheme::ask(&upstream)?;
    let types = types::read(&upstream, &resources, &facts)?;
    Ok(vec![
        Table { name: "resources.txt", text: upstream.origin() + &resources::render(&resources) },
        Table { name: "types.txt", text: upstream.origin() + &types },
        Table { name: "discovery.json", text: resources::answers(&upstream, &resources)? },
        Table { name: "conditional.txt", text: upstream.origin() + &scheme::render(&facts) },
        // Who reads it is no part of the schemas.
        Table {
            name: "../../../api_server/src/http/protobuf.txt",
            text: upstream.origin() + &wire::read(&upstream, &resources)?,
        },
    ])
}

/// Upstream's material, as the Go module that builds the control plane pins it.
struct Upstream {
    /// The Go module of ours that requires it.
    module: PathBuf,
    /// The folder of `k8s.io/kubernetes`.
    kubernetes: PathBuf,
    version: String,
}

impl Upstream {
    fn find() -> Result<Self> {
        let module = root().join("tests/control-plane");
        let said = go(
            &module,
            &["list", "-mod=readonly", "-m", "-f", "{{.Version}} {{.Dir}}", "k8s.io/kubernetes"],
        )?;
        let (version, folder) =
            said.trim().split_once(' ').context("`go list -m` did not say where k8s.io/kubernetes lies")?;
        ensure!(
            !folder.is_empty(),
            "k8s.io/kubernetes is not downloaded: run `go mod download` in {}",
            module.display()
        );
        Ok(Self { kubernetes: PathBuf::from(folder), version: version.to_owned(), module })
    }

    /// What stands at the head of every table.
    fn origin(&self) -> String {
        format!(
            "# Made by `cargo xtask describe`; do not edit. Derived from Kubernetes {}, which is\n\
             # Copyright The Kubernetes Authors, Apache License 2.0 (https://www.apache.org/licenses/LICENSE-2.0).\n",
            self.version
        )
    }

    fn json(&self, path: &str) -> Result<Value> {
        let path = self.kubernetes.join("api").join(path);
        let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }
}

/// What `go` prints, called with those arguments in our module.
fn go(module: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(module);
    // As the harness builds, so that what it has compiled is not compiled again.
    command.env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOFLAGS");
    let output = command.output().context("cannot start go")?;
    ensure!(
        output.status.success(),
        "`go {}` failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The member of `value` at `name`, which must be text.
fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    value.get(name).and_then(Value::as_str).with_context(|| format!("no {name} in {value}"))
}

/// The member of `value` at `name` as a list of text; empty if it is not there.
fn texts(value: &Value, name: &str) -> Vec<String> {
    let items = value.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

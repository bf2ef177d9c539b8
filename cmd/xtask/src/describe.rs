//! `cargo xtask describe`: generates the tables in `simulation/schema/src/tables` from upstream sources.
//!
//! Upstream's published OpenAPI and discovery documents contain the resources and types. A small Go program that links
//! upstream's scheme adds defaults, enumerations, and the fields that are written when empty. The result depends only
//! on the Kubernetes version in `tests/control-plane/go.mod`.

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

/// Notation of the Go types.
const FIELDS_LEGEND: &str = "# struct TYPE, then one GO_NAME JSON_NAME TYPE [always] a line in declaration order; a JSON_NAME of `-` inlines the fields.\n\
     # always: JSON contains the field even if it is empty.\n\
     # type NAME TYPE: a name of another type.\n";

/// Notation of the internal types.
const INTERNAL_LEGEND: &str = "# struct TYPE, then one JSON_NAME TYPE [optional] a line in declaration order; *x is a pointer, []x a list, {}x a map.\n";

/// Arguments of `cargo xtask describe`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Writes nothing, and fails if the committed tables are outdated.
    #[arg(long)]
    check: bool,
}

/// A file of the tables.
struct Table {
    /// Path in the folder of the tables.
    name: &'static str,
    text: String,
}

/// Generates the tables, or checks that they are current.
///
/// # Errors
/// If Go or the upstream sources are missing, if they contain an unknown construct, or if the committed tables are
/// outdated.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = root().join("simulation/schema/src/tables");
    for table in tables()? {
        let path = folder.join(table.name);
        if !arguments.check {
            std::fs::write(&path, &table.text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{} ({} bytes)", path.display(), table.text.len());
            continue;
        }
        let committed =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
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
        // Internal types in messages; the schemas do not use them.
        Table {
            name: "../../../api_server/src/registry/internal/types.txt",
            text: upstream.origin() + &internal_types(&upstream)?,
        },
        // Wire format; the schemas do not use it.
        Table {
            name: "../../../../runtime/kinds/src/table.txt",
            text: upstream.origin() + &wire::read(&upstream)?,
        },
        // Go types in declaration order; the schemas do not use them.
        Table {
            name: "../../../../runtime/gotext/src/fields.txt",
            text: upstream.origin() + &template_fields(&upstream)?,
        },
    ])
}

/// Returns the internal types that messages of upstream show.
fn internal_types(upstream: &Upstream) -> Result<String> {
    let printed = go(&upstream.module, &["run", "-mod=readonly", "-trimpath", "./describe", "internal"])?;
    Ok(INTERNAL_LEGEND.to_owned() + &printed)
}

/// Returns the Go types below a pod template, which a Go program that links upstream's types prints.
fn template_fields(upstream: &Upstream) -> Result<String> {
    let printed = go(&upstream.module, &["run", "-mod=readonly", "-trimpath", "./template-hash", "fields"])?;
    Ok(FIELDS_LEGEND.to_owned() + &printed)
}

/// Upstream sources of the version that the Go module of the control plane pins.
struct Upstream {
    /// The Go module in this workspace that requires it.
    module: PathBuf,
    /// Folder of `k8s.io/kubernetes`.
    kubernetes: PathBuf,
    version: String,
}

impl Upstream {
    fn find() -> Result<Self> {
        let module = root().join("tests/control-plane");
        let printed = go(
            &module,
            &["list", "-mod=readonly", "-m", "-f", "{{.Version}} {{.Dir}}", "k8s.io/kubernetes"],
        )?;
        let (version, folder) =
            printed.trim().split_once(' ').context("`go list -m` printed no folder of k8s.io/kubernetes")?;
        ensure!(
            !folder.is_empty(),
            "k8s.io/kubernetes is not downloaded: run `go mod download` in {}",
            module.display()
        );
        Ok(Self { kubernetes: PathBuf::from(folder), version: version.to_owned(), module })
    }

    /// Returns the header of the tables.
    fn origin(&self) -> String {
        format!(
            "# Made by `cargo xtask describe`; do not edit. Derived from Kubernetes {}, which is\n\
             # Copyright The Kubernetes Authors, Apache License 2.0 (https://www.apache.org/licenses/LICENSE-2.0).\n",
            self.version
        )
    }

    fn json(&self, path: &str) -> Result<Value> {
        let path = self.kubernetes.join("api").join(path);
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Returns the output of `go` with these arguments, run in the module.
fn go(module: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(module);
    // The same settings as in the harness, to reuse its build cache.
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

/// Returns the text member `name` of `value`.
fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    value.get(name).and_then(Value::as_str).with_context(|| format!("no {name} in {value}"))
}

/// Returns the member `name` of `value` as a list of text; empty if it is missing.
fn texts(value: &Value, name: &str) -> Vec<String> {
    let items = value.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

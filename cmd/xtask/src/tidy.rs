//! What clippy cannot say about this workspace, said by a table of small rules.
//!
//! Guarantees: every rule is a pure function of the files (and, for one, of what cargo says about the manifests) and
//! is tested on a workspace that breaks it; findings come in one order, each with a path, a line and a remedy.

mod code;
mod diagram;
mod graph;
mod language;
mod layout;
mod mask;
mod modules;
mod prose;
mod tree;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use graph::Graph;
use tree::{Finding, Tree};

/// A rule about files, with what it keeps.
type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

/// Every rule about files. `ARCHITECTURE.md` says which invariant each one keeps.
const RULES: &[Rule] = &[
    ("every select! is biased", code::selects_are_biased),
    ("nothing wakes in a random order", code::no_random_wakers),
    ("time passes through env", code::time_only_through_env),
    ("nothing is left undone", code::no_todo_markers),
    ("anyhow stays at the edge", code::no_anyhow_in_libraries),
    ("libraries install nothing global", code::libraries_install_nothing_global),
    ("functions fit a screen", code::max_function_length),
    ("a crate states its guarantees", layout::crates_state_their_guarantees),
    ("controllers do not import each other", layout::controllers_stand_alone),
    ("modules form no cycle", modules::modules_form_no_cycle),
    ("paths named in documents exist", prose::named_paths_exist),
    ("links lead somewhere", prose::links_resolve),
    ("no machine's own paths", prose::no_machine_paths),
    ("plain language", language::language_is_plain),
];

/// Options of `cargo xtask tidy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Prints the language findings below these paths only, pending folders included.
    #[arg(long, value_name = "PATH")]
    language: Vec<String>,
}

/// Checks the workspace, or the language of a part of it.
///
/// # Errors
/// If there is a finding, or if a file cannot be read.
pub(crate) fn run_with(arguments: &Arguments, root: &Path) -> Result<()> {
    if arguments.language.is_empty() {
        return run(root);
    }
    let tree = Tree::read(root).context("cannot read the workspace")?;
    report(language::findings_below(&tree, &arguments.language))
}

/// Prints findings in order.
///
/// # Errors
/// If there is one.
fn report(mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    for Finding { path, line, message } in &findings {
        eprintln!("{path}:{line}: {message}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    Ok(())
}

/// Checks the workspace at `root` and prints what is wrong with it.
///
/// # Errors
/// If anything is wrong, or cannot be read.
pub(crate) fn run(root: &Path) -> Result<()> {
    let started = Instant::now();
    let tree = Tree::read(root).context("cannot read the workspace")?;
    let mut findings: Vec<_> = RULES.iter().flat_map(|(name, rule)| named(name, rule(&tree))).collect();
    let graph = Graph::of_workspace(root)?;
    findings.extend(named("dependencies point one way", graph.violations()));
    findings
        .extend(named("the diagram shows the crates", diagram::diagram_shows_dependencies(&tree, &graph)));
    findings.extend(named("the binary links production code", graph::links_of_binary(root)?));
    report(findings)?;
    let (rules, files) = (RULES.len() + 3, tree.files().count());
    let exceptions = language::exceptions(&tree);
    let elapsed = started.elapsed();
    println!(
        "tidy: {rules} rules hold over {files} files, with {exceptions} language exceptions ({elapsed:.1?})"
    );
    Ok(())
}

fn named(rule: &str, findings: Vec<Finding>) -> impl Iterator<Item = Finding> {
    findings
        .into_iter()
        .map(move |finding| Finding { message: format!("{} [{rule}]", finding.message), ..finding })
}

//! Rules about this workspace that clippy cannot express.
//!
//! Guarantees: each rule is a pure function of the files (one also of cargo's metadata) and is tested on a workspace
//! that violates it. Findings are sorted, each with a path, a line and a remedy.

mod book;
mod code;
mod diagram;
mod graph;
mod language;
mod layout;
mod mask;
mod modules;
pub(crate) mod prose;
mod tree;
mod variants;
mod workflows;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use graph::Graph;
use tree::{Finding, Tree};

/// A rule about files, with its name.
type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

/// All rules about files. `ARCHITECTURE.md` describes their invariants.
const RULES: &[Rule] = &[
    ("select! is biased", code::selects_are_biased),
    ("wakeup order is deterministic", code::no_random_wakers),
    ("time comes from env", code::time_only_through_env),
    ("no unfinished code", code::no_todo_markers),
    ("libraries do not use anyhow", code::no_anyhow_in_libraries),
    ("libraries set no global state", code::libraries_install_nothing_global),
    ("functions are short", code::max_function_length),
    ("comments are wrapped", code::comments_are_wrapped),
    ("debug output names the type", code::debug_output_names_type),
    ("crates state their guarantees", layout::crates_state_their_guarantees),
    ("controllers do not import each other", layout::controllers_stand_alone),
    ("modules have no cycles", modules::modules_form_no_cycle),
    ("paths in documents exist", prose::named_paths_exist),
    ("links resolve", prose::links_resolve),
    ("the summary lists each page", book::summary_lists_pages),
    ("names in guides exist", book::names_exist),
    ("reasons of events are listed", book::event_reasons_are_listed),
    ("searched messages exist", book::searched_messages_exist),
    ("tables list all variants", variants::tables_list_variants),
    ("no machine-specific paths", prose::no_machine_paths),
    ("actions are pinned", workflows::actions_are_pinned),
    ("commands of workflows exist", workflows::workflow_commands_exist),
    ("commands of documents exist", workflows::document_commands_exist),
    ("plain language", language::language_is_plain),
    ("plain identifiers", language::identifiers_are_plain),
];

/// Options of `cargo xtask tidy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Prints only the language findings below these paths, pending folders included.
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

/// Prints the sorted findings.
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

/// Checks the workspace at `root` and prints the findings.
///
/// # Errors
/// If there is a finding, or if a file cannot be read.
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

//! Rules about the workflows that actionlint does not know, and about the commands of documents: actions are pinned,
//! and tasks, scripts and targets exist.

use clap::Parser as _;
use clap::error::ErrorKind;

use super::prose::code_spans;
use super::tree::{Finding, SourceFile, Tree};

/// The folder of workflows, in the root and in the template of operators.
const FOLDER: &str = ".github/workflows/";

/// Rejects an action of another repository without the hash of a commit and a comment with its version. The owner of
/// the action can move a tag, but not a commit.
pub(super) fn actions_are_pinned(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _) in workflows(tree) {
        for (at, line) in file.text.lines().enumerate() {
            let entry = line.trim().trim_start_matches("- ");
            if let Some(action) = entry.strip_prefix("uses:").map(str::trim)
                && !is_pinned(action)
            {
                let message = format!("pin `{action}` by a commit: `owner/name@<40 hex digits> # v1.2.3`");
                findings.push(file.finding(at + 1, message));
            }
        }
    }
    findings
}

fn is_pinned(action: &str) -> bool {
    if action.starts_with("./") {
        return true;
    }
    let Some((action, version)) = action.split_once(" # v") else { return false };
    let hash = action.split_once('@').map_or("", |(_, hash)| hash.trim());
    let is_hash = hash.len() == 40 && hash.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    is_hash && version.starts_with(|it: char| it.is_ascii_digit())
}

/// Rejects tasks of `cargo xtask`, scripts and targets of `make` that do not exist.
pub(super) fn workflow_commands_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, project) in workflows(tree) {
        for (line, command) in commands(&file.text) {
            let messages =
                command.split(['&', '|', ';', '(', ')']).filter_map(|it| unknown(tree, project, it));
            findings.extend(messages.map(|message| file.finding(line, message)));
        }
    }
    findings
}

/// Rejects tasks and flags of `cargo xtask` in documents that do not exist.
pub(super) fn document_commands_exist(tree: &Tree) -> Vec<Finding> {
    let pages = tree.files().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(unknown_tasks).collect()
}

fn unknown_tasks(page: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_shell = false;
    for (at, line) in page.text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_shell = language == "sh";
            continue;
        }
        let command = line.split(" #").next().unwrap_or_default();
        let commands: Vec<&str> = if is_shell {
            command.split(['&', '|', ';', '(', ')']).collect()
        } else {
            code_spans(line).collect()
        };
        let messages = commands.into_iter().filter_map(unknown_task);
        findings.extend(messages.map(|message| page.finding(at + 1, message)));
    }
    findings
}

/// Returns the reason why a document cannot name a command. It can omit required arguments.
fn unknown_task(command: &str) -> Option<String> {
    let arguments = command.trim().strip_prefix("cargo xtask ")?;
    let line = ["cargo xtask"].into_iter().chain(arguments.split_whitespace());
    let error = crate::Arguments::try_parse_from(line).err()?;
    let is_unknown = matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument);
    is_unknown
        .then(|| format!("`{}`: {}", command.trim(), error.to_string().lines().next().unwrap_or_default()))
}

/// Returns the workflows with the folders of their projects.
fn workflows(tree: &Tree) -> impl Iterator<Item = (&SourceFile, &str)> {
    tree.files().filter_map(|file| {
        let (project, _) = file.path.split_once(FOLDER)?;
        Some((file, project))
    })
}

/// Returns the lines of the shell commands, counted from 1.
fn commands(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // The indentation of the key whose block the lines are in.
    let mut block: Option<usize> = None;
    for (at, line) in text.lines().enumerate() {
        let entry = line.trim_start();
        let indentation = line.len() - entry.len();
        if block.is_some_and(|key| entry.is_empty() || indentation > key) {
            found.push((at + 1, entry));
            continue;
        }
        block = None;
        let Some(command) = entry.trim_start_matches("- ").strip_prefix("run:").map(str::trim) else {
            continue;
        };
        if command.starts_with(['|', '>']) {
            block = Some(indentation);
        } else {
            found.push((at + 1, command));
        }
    }
    found
}

/// Returns the reason why a command cannot run.
fn unknown(tree: &Tree, project: &str, command: &str) -> Option<String> {
    let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    let words: Vec<&str> = words.skip_while(|word| word.contains('=')).collect();
    match words.as_slice() {
        ["cargo", "xtask", arguments @ ..] => {
            let line = ["cargo xtask"].into_iter().chain(arguments.iter().copied());
            let error = crate::Arguments::try_parse_from(line).err()?;
            Some(format!("`{}`: {}", command.trim(), error.to_string().lines().next()?))
        }
        ["make", arguments @ ..] => {
            let path = format!("{project}Makefile");
            let file = tree.files().find(|file| file.path == path);
            let has = |target: &str| {
                file.is_some_and(|it| it.text.lines().any(|line| line.starts_with(&format!("{target}:"))))
            };
            let gone = arguments.iter().find(|it| !it.contains('=') && !has(it))?;
            Some(format!("`{path}` has no target `{gone}`"))
        }
        ["bash" | "sh", script, ..] | [script, ..] if script.contains('/') && !script.contains('$') => {
            let path = format!("{project}{}", script.trim_start_matches("./"));
            (!tree.has(&path)).then(|| format!("the script `{path}` does not exist"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<(usize, String)> {
        let tree = Tree::of(&[
            (path, text),
            (".ci/run", ""),
            ("new/chart/generate.sh", ""),
            ("new/Makefile", "check: ## Check\n\ttrue\n"),
        ]);
        rule(&tree).into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn action_without_commit_is_found() {
        let hash = "08c6903cd8c0fde910a37f88322edcfb5dd907a8";
        let text = format!(
            "steps:\n  - uses: a/b@{hash} # v5.0.0\n  - uses: a/b@v5\n  - name: x\n    uses: a/b@{hash}\n\
             jobs:\n  ci:\n    uses: ./.github/workflows/ci.yml\n  - uses: a/b@{} # v5.0.0\n  # uses: a/b@v5\n",
            &hash[1..]
        );
        let found = found(actions_are_pinned, "x/.github/workflows/a.yml", &text);
        let lines: Vec<_> = found.into_iter().map(|it| it.0).collect();
        assert_eq!(lines, [3, 5, 9]);
    }

    #[test]
    fn missing_task_and_script_are_found() {
        let text = "steps:\n  - run: bash .ci/run\n  - run: cargo xtask lint && cargo xtask gone\n  - name: x\n    run: |\n\
                    \x20     cargo xtask image --no-such-flag\n\n      bash .ci/gone\n    path: a/b\n  - run: A=b ./.ci/run\n";
        let found_in_root = found(workflow_commands_exist, ".github/workflows/a.yml", text);
        let lines: Vec<_> = found_in_root.iter().map(|it| it.0).collect();
        assert_eq!(lines, [3, 6, 8], "{found_in_root:?}");
        assert!(found_in_root[0].1.contains("unrecognized subcommand 'gone'"), "{found_in_root:?}");
        assert!(found_in_root[1].1.contains("--no-such-flag"), "{found_in_root:?}");
        assert_eq!(found_in_root[2].1, "the script `.ci/gone` does not exist");
    }

    #[test]
    fn missing_task_in_document_is_found() {
        let page = "`cargo xtask gone`, `cargo xtask new-operator`, `cargo xtask tidy --language <path>`\n\n```sh\n\
                    cargo xtask lint    # not gone\ncargo xtask lint && cargo xtask tidy --gone\n```\ncargo xtask gone\n";
        let found = found(document_commands_exist, "docs/a.md", page);
        let lines: Vec<_> = found.iter().map(|it| it.0).collect();
        assert_eq!(lines, [1, 5], "{found:?}");
    }

    #[test]
    fn commands_of_another_project_are_in_its_folder() {
        let text = "  - run: chart/generate.sh\n  - run: chart/gone.sh\n  - run: make check A=b\n  - run: make gone\n";
        let found = found(workflow_commands_exist, "new/.github/workflows/a.yml", text);
        let missing =
            ["the script `new/chart/gone.sh` does not exist", "`new/Makefile` has no target `gone`"];
        assert_eq!(found, [(2, missing[0].to_owned()), (4, missing[1].to_owned())]);
    }
}

//! The files of the workspace, read once.
//!
//! Guarantees: paths are relative to the root, use `/`, and are sorted. Build output and files of git are excluded.
//! Files that are not UTF-8 have a path and no text.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use super::mask::BlankedSource;

/// Folders without source files of the workspace.
const SKIPPED: &[&str] = &[".git", "target"];

/// Snapshot of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<SourceFile>,
    folders: BTreeSet<String>,
}

/// One file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    /// Content of the file; empty if it is not UTF-8.
    pub(crate) text: String,
}

/// Violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Line, counted from 1; 0 for the whole file.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Tree {
    /// Reads a workspace from disk.
    ///
    /// # Errors
    /// If a folder or file cannot be read.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.visit(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// Returns a workspace with these paths and texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            let folders = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
            tree.folders.extend(folders);
            tree.files.push(SourceFile { path: (*path).to_owned(), text: (*text).to_owned() });
        }
        tree
    }

    fn visit(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                self.visit(&entry.path(), &format!("{path}/"))?;
                self.folders.insert(path);
            } else {
                let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                self.files.push(SourceFile { path, text });
            }
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// Returns the Rust sources below any of these folders; an empty prefix selects the whole workspace.
    pub(crate) fn rust<'a>(&'a self, prefixes: &'a [&str]) -> impl Iterator<Item = RustFile<'a>> {
        self.files
            .iter()
            .filter(|file| file.path.ends_with(".rs"))
            .filter(move |file| prefixes.iter().any(|prefix| file.path.starts_with(prefix)))
            .map(RustFile::new)
    }

    pub(crate) fn find(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns whether a file or folder with this path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.folders.contains(path) || self.find(path).is_some()
    }
}

impl SourceFile {
    pub(crate) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

/// Rust source with its comments and literals blanked.
#[derive(Debug)]
pub(crate) struct RustFile<'a> {
    pub(crate) file: &'a SourceFile,
    pub(crate) code: BlankedSource,
}

impl<'a> RustFile<'a> {
    pub(crate) fn new(file: &'a SourceFile) -> Self {
        Self { file, code: BlankedSource::new(&file.text) }
    }
}

impl RustFile<'_> {
    /// Returns the offsets of `needle` as whole words.
    pub(crate) fn occurrences<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
        let code = self.code.text();
        code.match_indices(needle).map(|(at, _)| at).filter(move |at| {
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let end = at + needle.len();
            let starts = !is_word(code[..*at].chars().next_back()) || !is_word(needle.chars().next());
            let ends = !is_word(code[end..].chars().next()) || !is_word(needle.chars().next_back());
            starts && ends
        })
    }

    pub(crate) fn finding_at(&self, offset: usize, message: impl Into<String>) -> Finding {
        self.file.finding(self.code.line_of(offset), message)
    }
}

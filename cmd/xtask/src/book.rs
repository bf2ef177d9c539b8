//! `cargo xtask book`: builds the book from `docs/` with mdBook.
//!
//! Guarantees: nothing is written inside the tree; a link to a page of the book leads to its chapter, and a link to
//! another file of the repository leads to its text, which the book contains; a link of the built book without a target
//! is an error. `cargo xtask tidy` checks the links of the sources, and that the summary lists each page.

mod links;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::tidy::prose::{joined, link_targets, with_links};
use crate::tools::{Source, Tool};
use crate::workspace::{must, remove_directory, root, target_directory};

const TOOL: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    source: Source::Crate { features: "search" },
    duration: "about two minutes",
};

/// The page that defines the chapters.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The folder of the book for files outside of `docs/`.
const OUTSIDE: &str = "repository";

/// Builds the book in the target directory, and prints the path of its first page.
///
/// # Errors
/// If mdBook cannot be installed, a page cannot be read, or a link of the book is dead.
pub(crate) fn run() -> Result<()> {
    let folder = target_directory()?.join("book");
    remove_directory(&folder)?;
    let mut book = Book::new(root(), folder.join("src"))?;
    book.copy_all()?;
    write(&folder.join("book.toml"), &read(&root().join("docs/book.toml"))?)?;
    let html = folder.join("html");
    let mut mdbook = Command::new(TOOL.path()?);
    mdbook.args(["build", "--dest-dir"]).arg(&html).arg(&folder).env("RUST_LOG", "warn");
    must(&mut mdbook)?;
    let dead = links::dead(&html)?;
    ensure!(dead.is_empty(), "the book has dead links:\n  {}", dead.join("\n  "));
    println!("book: {} chapters, {}", book.chapters.len(), html.join("index.html").display());
    Ok(())
}

/// The sources of the book while they are copied.
#[derive(Debug)]
struct Book {
    root: PathBuf,
    sources: PathBuf,
    /// Paths of the chapters from the root of the repository.
    chapters: BTreeSet<String>,
}

impl Book {
    fn new(root: PathBuf, sources: PathBuf) -> Result<Self> {
        let summary = read(&root.join(SUMMARY))?;
        let chapters = link_targets(&summary).map(|target| joined(SUMMARY, target)).collect();
        Ok(Self { root, sources, chapters })
    }

    /// Copies the summary, the chapters, the pictures of `docs/`, and each file that a chapter links.
    fn copy_all(&mut self) -> Result<()> {
        let mut open: Vec<String> = self.chapters.iter().cloned().collect();
        open.push(SUMMARY.to_owned());
        let mut copied: BTreeSet<String> = open.iter().cloned().collect();
        while let Some(page) = open.pop() {
            for linked in self.copy(&page)? {
                if copied.insert(linked.clone()) {
                    open.push(linked);
                }
            }
        }
        Ok(())
    }

    /// Copies a file with the links of the book, and returns the files that it links.
    fn copy(&self, path: &str) -> Result<Vec<String>> {
        let from = self.root.join(path);
        ensure!(from.is_file(), "a page of the book links {path}, which is no file; link a file in it");
        let to = self.sources.join(self.location(path));
        if !self.is_page(path) {
            let bytes = std::fs::read(&from).with_context(|| format!("cannot read {path}"))?;
            return write(&to, bytes).map(|()| Vec::new());
        }
        let mut linked = Vec::new();
        let text = with_links(&read(&from)?, |target| {
            let (file, fragment) = split(target);
            if file.is_empty() || file.contains(':') {
                return target.to_owned();
            }
            let file = joined(path, file);
            let location = relative(&self.location(path), &self.location(&file));
            // The text of a file outside of the book has no headings.
            let fragment = if self.is_page(&file) { fragment } else { "" };
            linked.push(file);
            format!("{location}{fragment}")
        });
        write(&to, text).map(|()| linked)
    }

    fn is_page(&self, path: &str) -> bool {
        path == SUMMARY || self.chapters.contains(path)
    }

    /// Returns the path of a file in the book. A file outside of `docs/` that is no chapter becomes a text file, which
    /// each browser displays. mdBook replaces `README.md` and each `.md` in a link, so a copy has neither.
    fn location(&self, path: &str) -> String {
        if let Some(own) = path.strip_prefix("docs/") {
            return own.to_owned();
        }
        let name = path.strip_suffix("/README.md").or_else(|| path.strip_suffix(".md")).unwrap_or(path);
        let ending = if self.is_page(path) { "md" } else { "txt" };
        format!("{OUTSIDE}/{name}.{ending}")
    }
}

/// Splits a link target before the `#`.
fn split(target: &str) -> (&str, &str) {
    target.split_at(target.find('#').unwrap_or(target.len()))
}

/// Returns the relative link from one file to another.
fn relative(from: &str, to: &str) -> String {
    let from: Vec<_> = from.split('/').collect();
    let to: Vec<_> = to.split('/').collect();
    let folders = from.len() - 1;
    let shared = from[..folders].iter().zip(&to[..to.len() - 1]).take_while(|(a, b)| a == b).count();
    let mut parts = vec![".."; folders - shared];
    parts.extend(&to[shared..]);
    parts.join("/")
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let Some(folder) = path.parent() else { bail!("{} has no folder", path.display()) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_relative_to_its_page() {
        assert_eq!(relative("a.md", "b.md"), "b.md");
        assert_eq!(relative("a.md", "repository/x/y.rs.txt"), "repository/x/y.rs.txt");
        assert_eq!(relative("repository/tests/a.md", "b.md"), "../../b.md");
        assert_eq!(relative("repository/tests/a.md", "repository/tests/b/c.txt"), "b/c.txt");
    }

    #[test]
    fn links_out_of_the_book_lead_to_copies() {
        let root = tempfile::tempdir().unwrap();
        let sources = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| write(&root.path().join(path), text).unwrap();
        file(SUMMARY, "- [A](a.md)\n- [Parity](../tests/README.md)\n");
        let links =
            "[c](../src/lib.rs#x), [b](../tests/README.md#c), [d](../B.md), `[n](no)`, [w](https://x.y)\n";
        file("docs/a.md", links);
        file("tests/README.md", "[a](../docs/a.md)\n");
        file("B.md", "[n](no)\n");
        file("src/lib.rs", "//! [n](no)\n");
        let mut book = Book::new(root.path().to_owned(), sources.path().to_owned()).unwrap();
        book.copy_all().unwrap();
        let copy = |path: &str| read(&sources.path().join(path)).unwrap();
        assert_eq!(
            copy("a.md"),
            "[c](repository/src/lib.rs.txt), [b](repository/tests.md#c), [d](repository/B.txt), `[n](no)`, [w](https://x.y)\n"
        );
        assert_eq!(copy("SUMMARY.md"), "- [A](a.md)\n- [Parity](repository/tests.md)\n");
        assert_eq!(copy("repository/tests.md"), "[a](../a.md)\n");
        assert_eq!(copy("repository/src/lib.rs.txt"), "//! [n](no)\n");
        file("docs/a.md", "[folder](../src)\n");
        let error = book.copy_all().unwrap_err().to_string();
        assert!(error.contains("links src, which is no file"), "{error}");
    }
}

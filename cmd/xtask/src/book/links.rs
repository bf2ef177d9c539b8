//! The links of the built book.
//!
//! It finds attributes in the output of mdBook, not in any HTML.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::tidy::prose::joined;

/// The page for unknown addresses: its links are absolute.
const NOT_FOUND: &str = "404.html";

/// Returns the links to missing files and headings below a folder.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn dead(html: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    list(html, "", &mut files)?;
    let mut pages = BTreeMap::new();
    for path in files.iter().filter(|path| path.ends_with(".html") && *path != NOT_FOUND) {
        let text = std::fs::read_to_string(html.join(path)).with_context(|| format!("cannot read {path}"))?;
        pages.insert(path.as_str(), text);
    }
    Ok(pages.iter().flat_map(|(path, text)| dead_of_page(path, text, &files, &pages)).collect())
}

fn list(folder: &Path, prefix: &str, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

fn dead_of_page(
    path: &str,
    text: &str,
    files: &BTreeSet<String>,
    pages: &BTreeMap<&str, String>,
) -> Vec<String> {
    let targets: BTreeSet<&str> = attributes(text, "href").chain(attributes(text, "src")).collect();
    let is_alive = |target: &&str| {
        let (file, id) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { path.to_owned() } else { joined(path, file) };
        let has_id = |page: &String| id.is_empty() || attributes(page, "id").any(|it| it == id);
        files.contains(&file) && pages.get(file.as_str()).is_none_or(has_id)
    };
    let own = targets.into_iter().filter(|target| !target.contains(':'));
    own.filter(|target| !is_alive(target)).map(|target| format!("{path}: {target}")).collect()
}

/// Returns the values of an attribute.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {name}=\"");
    let length = start.len();
    let at: Vec<_> = text.match_indices(&start).map(|(at, _)| at + length).collect();
    at.into_iter().filter_map(move |at| text[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_without_file_or_heading_is_dead() {
        let files = BTreeSet::from(["a.html", "x/b.html", "c.txt"].map(str::to_owned));
        let page = r##"<a href="x/b.html#one"><a href="x/b.html#two"><a href="c.txt"><a href="d.html">
            <a href="#no"><a href="https://x.y/z"><img src="no.svg">"##;
        let other = r#"<h1 id="one">"#.to_owned();
        let pages = BTreeMap::from([("a.html", page.to_owned()), ("x/b.html", other)]);
        let found = dead_of_page("a.html", page, &files, &pages);
        assert_eq!(found, ["a.html: #no", "a.html: d.html", "a.html: no.svg", "a.html: x/b.html#two"]);
    }
}

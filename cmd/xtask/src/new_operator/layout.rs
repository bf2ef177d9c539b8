//! The folder of a project and the clone of Windlass, seen from each other.
//!
//! No crate and no chart of Windlass is published. A project therefore refers to the clone by a relative path, which is
//! valid on each machine with the same layout, also in CI.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The folders of a project and of the clone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The path from the project to the clone, such as `../windlass`.
    pub(super) to_clone: String,
    /// The project below the nearest common folder, such as `shop-operator`.
    pub(super) project: String,
    /// The clone below the nearest common folder, such as `windlass`.
    pub(super) clone: String,
}

impl Layout {
    /// Returns the layout of a project in a folder that does not exist yet.
    ///
    /// # Errors
    /// If the parent of the folder does not exist, or the folder is inside of the clone or contains it.
    pub(super) fn new(folder: &Path, clone: &Path) -> Result<Self> {
        let name = folder.file_name().with_context(|| format!("{} has no name", folder.display()))?;
        let parent = folder.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let resolved = |path: &Path| {
            path.canonicalize().with_context(|| format!("cannot resolve {}; create it first", path.display()))
        };
        Self::between(&resolved(parent)?.join(name), &resolved(clone)?)
    }

    /// Returns the layout of two absolute folders.
    fn between(project: &Path, clone: &Path) -> Result<Self> {
        let common: PathBuf = project
            .components()
            .zip(clone.components())
            .take_while(|(left, right)| left == right)
            .map(|(component, _)| component)
            .collect();
        let (project_below, clone_below) = (project.strip_prefix(&common)?, clone.strip_prefix(&common)?);
        ensure!(
            project_below.components().next().is_some() && clone_below.components().next().is_some(),
            "{} and the clone of Windlass, {}, must not contain each other; use a folder next to the clone by --path",
            project.display(),
            clone.display()
        );
        let mut to_clone: PathBuf = project_below.components().map(|_| Component::ParentDir).collect();
        to_clone.push(clone_below);
        Ok(Self { to_clone: text(&to_clone)?, project: text(project_below)?, clone: text(clone_below)? })
    }
}

/// Returns a relative path with the separators of manifests. Such a path needs no quotes in YAML and TOML.
fn text(path: &Path) -> Result<String> {
    let parts = path.components().map(|it| it.as_os_str().to_str()).collect::<Option<Vec<_>>>();
    let is_plain = |it: char| it.is_alphanumeric() || "-_./".contains(it);
    let text = parts.map(|parts| parts.join("/")).filter(|text| text.chars().all(is_plain));
    text.with_context(|| {
        format!(
            "{} contains a character other than letters, digits, `-`, `_` and `.`; use other folders",
            path.display()
        )
    })
}

/// Returns `owner/name` of a repository on GitHub.
pub(super) fn github_repository(url: &str) -> Option<&str> {
    let (_, rest) = url.trim().split_once("github.com")?;
    let path = rest.strip_prefix(['/', ':'])?;
    let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/');
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let (owner, name) = path.split_once('/')?;
    let is_name = |part: &str| !part.is_empty() && part.chars().all(is_plain);
    (is_name(owner) && is_name(name)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_in_both_directions() {
        for (project, clone, to_clone, below) in [
            ("/src/shop", "/src/windlass", "../windlass", ("shop", "windlass")),
            ("/src/ops/shop", "/src/windlass", "../../windlass", ("ops/shop", "windlass")),
            ("/src/shop", "/src/third/party", "../third/party", ("shop", "third/party")),
            ("/a/shop", "/b/windlass", "../../b/windlass", ("a/shop", "b/windlass")),
            ("/src/windlass-shop", "/src/windlass", "../windlass", ("windlass-shop", "windlass")),
        ] {
            let layout = Layout::between(Path::new(project), Path::new(clone)).expect(project);
            let (project, clone) = (below.0.to_owned(), below.1.to_owned());
            assert_eq!(layout, Layout { to_clone: to_clone.to_owned(), project, clone });
        }
    }

    #[test]
    fn unusable_folders_are_rejected_with_remedy() {
        for (project, part) in [
            ("/src/windlass/shop", "use a folder next to the clone"),
            ("/src/windlass", "use a folder next to the clone"),
            ("/src", "use a folder next to the clone"),
            ("/src/my shop", "my shop contains a character"),
            ("/src/a\"b", "use other folders"),
        ] {
            let error = Layout::between(Path::new(project), Path::new("/src/windlass")).expect_err(project);
            let error = error.to_string();
            assert!(error.contains(part), "{error}");
        }
        let parent = tempfile::tempdir().expect("a folder");
        let error = Layout::new(&parent.path().join("missing/shop"), parent.path()).expect_err("no parent");
        assert!(format!("{error:#}").contains("missing; create it first"), "{error:#}");
    }

    #[test]
    fn repository_is_that_of_a_remote_on_github() {
        for url in [
            "https://github.com/windlass-dev/windlass",
            "https://github.com/windlass-dev/windlass.git\n",
            "https://user:secret@github.com/windlass-dev/windlass/",
            "git@github.com:windlass-dev/windlass.git",
            "ssh://git@github.com/windlass-dev/windlass.git",
        ] {
            assert_eq!(github_repository(url), Some("windlass-dev/windlass"), "{url}");
        }
        for url in
            ["", "/srv/windlass", "https://gitlab.com/a/b", "https://github.com/a", "git@github.com:a/b/c"]
        {
            assert_eq!(github_repository(url), None, "{url}");
        }
    }
}

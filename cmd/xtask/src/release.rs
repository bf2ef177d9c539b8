//! `cargo xtask release TAG`: checks that the crates, the chart and the list of changes have the version of a tag.

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{read, root};

/// Tag of a release.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the tag, such as v0.1.0.
    tag: String,
}

/// Checks the files.
///
/// # Errors
/// If a file lacks the version, or cannot be read.
pub(crate) fn run(Arguments { tag }: &Arguments) -> Result<()> {
    let version = tag.strip_prefix('v').with_context(|| format!("{tag} is not a tag such as v0.1.0"))?;
    let mut findings = Vec::new();
    for (file, text) in expected(version) {
        let content = read(&root().join(file))?;
        findings.extend(missing(&String::from_utf8_lossy(&content), &text).map(|it| format!("{file} {it}")));
    }
    ensure!(findings.is_empty(), "{tag} cannot be released:\n  {}", findings.join("\n  "));
    println!("release: the files have the version {version}");
    Ok(())
}

/// Returns files, and lines in them that state the version.
fn expected(version: &str) -> [(&'static str, String); 3] {
    [
        ("Cargo.toml", format!("[workspace.package]\nversion = \"{version}\"\n")),
        // The default tag of the image.
        ("deploy/charts/windlass/Chart.yaml", format!("\nappVersion: {version}\n")),
        ("CHANGELOG.md", format!("\n## [{version}] - ")),
    ]
}

fn missing(content: &str, text: &str) -> Option<String> {
    (!content.contains(text)).then(|| format!("lacks {:?}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_of_another_form_is_rejected() {
        let error = run(&Arguments { tag: "0.1.0".to_owned() }).expect_err("no prefix").to_string();
        assert_eq!(error, "0.1.0 is not a tag such as v0.1.0");
    }

    #[test]
    fn file_of_another_version_is_named() {
        let error = run(&Arguments { tag: "v9.9.9".to_owned() }).expect_err("another version").to_string();
        for file in ["Cargo.toml lacks", "Chart.yaml lacks \"appVersion: 9.9.9\"", "CHANGELOG.md lacks"] {
            assert!(error.contains(file), "{error}");
        }
    }

    #[test]
    fn version_of_the_workspace_is_found() {
        let version = env!("CARGO_PKG_VERSION");
        let [crates, chart, _] = expected(version);
        for (file, text) in [crates, chart] {
            let content = std::fs::read_to_string(root().join(file)).expect(file);
            assert_eq!(missing(&content, &text), None);
        }
        assert_eq!(missing("# Changelog\n\n## [0.1.0] - 2026-11-28\n", "\n## [0.1.0] - "), None);
    }
}

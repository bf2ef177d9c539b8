//! `cargo xtask new-operator NAME`: writes the operator of `templates/operator` as a new project of that name.
//!
//! Guarantees: an existing folder is not changed, and a failure leaves no folder. The versions of all dependencies are
//! those of this workspace. The crate `windlass` and the library chart are relative paths to this clone, and the CI of
//! the project checks out both in the same layout. Needs no network.
//!
//! With `--template` it writes the same project with placeholders instead of a name, for `cargo generate`.

mod layout;
mod name;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::workspace::{cargo, output, root};
use layout::{Layout, github_repository};

/// The template, and the name that a new project replaces.
const TEMPLATE: &str = "templates/operator";
const SAMPLE: &str = "site-operator";

/// Files of the template that a new project does not get: its own manifest is generated, and Helm writes the lock.
const LEFT_OUT: [&str; 2] = ["Cargo.toml", "Chart.lock"];

/// Files of this workspace that a new project gets.
const SHARED: [&str; 3] = ["Cargo.lock", "rust-toolchain.toml", "rustfmt.toml"];

/// The repository of Windlass in the template.
const REPOSITORY: &str = "OWNER/windlass";

/// The path of the clone in the documents of the template, and in its chart, which is inside of the clone.
const IN_PROJECT: &str = "../windlass";
const IN_CHART: &str = "file://../../..";

/// The end of the manifest. Otherwise cargo rejects a project below another workspace, such as this one.
const STANDALONE: &str = "\n[workspace]\n";

/// A new project.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the program, its package, image and chart: lowercase letters, digits and dashes.
    #[arg(required_unless_present = "template")]
    name: Option<String>,

    /// Folder to create; by default a folder with the name of the program next to the clone.
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,

    /// Folder to create with a template for `cargo generate` instead of a project.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["name", "path"])]
    template: Option<PathBuf>,
}

/// The names that replace those of the sample.
struct Names {
    program: String,
    library: String,
    /// Texts that `cargo generate` would read as placeholders, and their replacements.
    escaped: &'static [(&'static str, &'static str)],
}

impl Names {
    fn of(program: &str) -> Result<Self> {
        name::check(program, &read(&root().join("Cargo.lock"))?, SAMPLE)?;
        Ok(Self { program: program.to_owned(), library: program.replace('-', "_"), escaped: &[] })
    }

    fn placeholders() -> Self {
        let escaped = &[("{{", "{{ \"{{\" }}"), ("{%", "{{ \"{%\" }}")];
        Self { program: "{{project-name}}".to_owned(), library: "{{crate_name}}".to_owned(), escaped }
    }
}

/// The text and the mode of the files of a project.
type Files = BTreeMap<PathBuf, (String, Option<fs::Permissions>)>;

/// Writes the project and prints the next steps.
///
/// # Errors
/// If the name is invalid, the folder exists, or a file cannot be read or written.
pub(crate) fn run(Arguments { name, path, template }: &Arguments) -> Result<()> {
    let origin = Origin::of_clone();
    if let Some(folder) = template {
        write_template(folder, &origin)?;
        let folder = std::path::absolute(folder)?;
        let folder = folder.display();
        println!(
            "{folder} contains a template. In the folder that contains this clone:\n\n  \
             cargo generate --path {folder} --name shop-operator\n  cd shop-operator\n  \
             cargo update --workspace --offline\n  cargo fmt\n  cargo test"
        );
    } else {
        let name = name.as_deref().context("the name is missing")?;
        let folder = path.clone().unwrap_or_else(|| root().with_file_name(name));
        write(name, &folder, &origin)?;
        println!(
            "{} contains the operator {name}. Next:\n\n  cd {}\n  cargo test\n  git init --quiet && git add .\n\nREADME.md \
             continues with a cluster and the chart. Change the kind and the controller in src/lib.rs.",
            folder.display(),
            folder.display()
        );
    }
    if origin.repository.is_none() {
        println!(
            "This clone has no remote on GitHub: replace {REPOSITORY} in the files in .github/workflows by a repository \
             that contains it."
        );
    }
    Ok(())
}

/// The origin of this clone.
#[derive(Debug, Default)]
struct Origin {
    /// The repository on GitHub.
    repository: Option<String>,
    /// The commit.
    commit: Option<String>,
}

impl Origin {
    /// Returns the origin, as far as git knows it: the folder can be an archive without history.
    fn of_clone() -> Self {
        let git = |arguments: &[&str]| output(Command::new("git").current_dir(root()).args(arguments)).ok();
        let url = git(&["remote", "get-url", "origin"]);
        Self {
            repository: url.as_deref().and_then(github_repository).map(str::to_owned),
            commit: git(&["rev-parse", "HEAD"]).map(|commit| commit.trim().to_owned()),
        }
    }
}

fn write(name: &str, folder: &Path, origin: &Origin) -> Result<()> {
    let files = project(&Names::of(name)?, &Layout::new(folder, &root())?, origin)?;
    create(folder, &files, || complete(folder))
}

/// Writes a template for `cargo generate`. Its projects are next to the clone.
fn write_template(folder: &Path, origin: &Origin) -> Result<()> {
    let names = Names::placeholders();
    let Layout { to_clone, clone, .. } = Layout::new(&root().with_file_name(SAMPLE), &root())?;
    let layout = Layout { to_clone, project: names.program.clone(), clone };
    create(folder, &project(&names, &layout, origin)?, || Ok(()))
}

/// Writes a project as a member of a workspace that contains the crates and charts of this one. Returns its folder.
///
/// # Errors
/// If the name is invalid, the folder exists, or a file cannot be read or written.
pub(crate) fn write_member(name: &str, workspace: &Path) -> Result<PathBuf> {
    let layout = Layout { to_clone: "..".to_owned(), project: name.to_owned(), clone: ".".to_owned() };
    let mut files = project(&Names::of(name)?, &layout, &Origin::default())?;
    let (manifest, _) = files.get_mut(Path::new("Cargo.toml")).context("the project has no manifest")?;
    *manifest = manifest.replace(STANDALONE, "");
    let folder = workspace.join(name);
    create(&folder, &files, || complete(&folder))?;
    Ok(folder)
}

/// Returns the files of a project.
fn project(names: &Names, layout: &Layout, origin: &Origin) -> Result<Files> {
    let mut files = Files::new();
    for shared in SHARED {
        files.insert(shared.into(), (read(&root().join(shared))?, None));
    }
    let template = root().join(TEMPLATE);
    for file in template_files(&template)? {
        let path = template.join(&file);
        let permissions = fs::metadata(&path)?.permissions();
        files.insert(file, (adapted(&read(&path)?, names, layout, origin), Some(permissions)));
    }
    files.insert("Cargo.toml".into(), (manifest(&names.program, &package()?, layout)?, None));
    files.insert(".gitignore".into(), ("/target\n/chart/charts\n".to_owned(), None));
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the files of the template, relative to it.
fn template_files(template: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![template.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                // Helm writes the first, cargo the second.
                if !path.ends_with("chart/charts") && !path.ends_with("target") {
                    folders.push(path);
                }
            } else if !LEFT_OUT.iter().any(|name| path.ends_with(name)) {
                files.push(path.strip_prefix(template)?.to_owned());
            }
        }
    }
    Ok(files)
}

/// Returns a text of the template with the names and paths of the project.
fn adapted(text: &str, names: &Names, layout: &Layout, origin: &Origin) -> String {
    let in_ci = |field: &str, folder: &str| format!("{field}: {folder}\n");
    let escaped = names.escaped.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
    let pairs = [
        (IN_CHART.to_owned(), format!("file://../{}", layout.to_clone)),
        (IN_PROJECT.to_owned(), layout.to_clone.clone()),
        (in_ci("path", SAMPLE), in_ci("path", &layout.project)),
        (in_ci("path", "windlass"), in_ci("path", &layout.clone)),
        (in_ci("working-directory", SAMPLE), in_ci("working-directory", &layout.project)),
        (in_ci("ref", "main"), in_ci("ref", origin.commit.as_deref().unwrap_or("main"))),
        (REPOSITORY.to_owned(), origin.repository.clone().unwrap_or_else(|| REPOSITORY.to_owned())),
        (SAMPLE.to_owned(), names.program.clone()),
        (SAMPLE.replace('-', "_"), names.library.clone()),
    ];
    replaced(text, &pairs.into_iter().chain(escaped).collect::<Vec<_>>())
}

/// Replaces each first text of a pair by the second, in one pass: a replacement is not replaced again.
fn replaced(text: &str, pairs: &[(String, String)]) -> String {
    let (mut result, mut rest) = (String::new(), text);
    let next = |rest: &str| {
        let found = pairs.iter().filter_map(|pair| Some((rest.find(&pair.0)?, pair)));
        found.min_by_key(|(position, _)| *position)
    };
    while let Some((position, (from, to))) = next(rest) {
        result += &rest[..position];
        result += to;
        rest = &rest[position + from.len()..];
    }
    result + rest
}

/// Creates a folder with these files and completes it. A failure removes the folder.
fn create(folder: &Path, files: &Files, complete: impl FnOnce() -> Result<()>) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} exists; choose another name or folder", folder.display())
        }
        created => created.with_context(|| format!("cannot create {}", folder.display()))?,
    }
    let created = write_all(folder, files).and_then(|()| complete());
    if created.is_err()
        && let Err(error) = fs::remove_dir_all(folder)
    {
        return created
            .with_context(|| format!("{} is incomplete and cannot be removed: {error}", folder.display()));
    }
    created
}

fn write_all(folder: &Path, files: &Files) -> Result<()> {
    for (path, (text, permissions)) in files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        if let Some(permissions) = permissions {
            fs::set_permissions(&path, permissions.clone())?;
        }
    }
    Ok(())
}

/// Removes the packages from `Cargo.lock` that only other parts of this workspace need, and formats the code: the name
/// of the project determines the order of imports.
fn complete(folder: &Path) -> Result<()> {
    for arguments in [&["update", "--workspace", "--offline", "--quiet"][..], &["fmt"]] {
        output(cargo().current_dir(folder).args(arguments))?;
    }
    Ok(())
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    edition: String,
    rust_version: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
    /// The platform, such as `cfg(target_env = "musl")`.
    target: Option<String>,
    features: Vec<String>,
    uses_default_features: bool,
    path: Option<PathBuf>,
}

/// Returns the package of the template.
fn package() -> Result<Package> {
    let metadata = output(cargo().args(["metadata", "--no-deps", "--offline", "--format-version=1"]))?;
    let metadata: Metadata =
        serde_json::from_str(&metadata).context("cannot decode the output of cargo metadata")?;
    let found = metadata.packages.into_iter().find(|package| package.name == SAMPLE);
    found.with_context(|| format!("the workspace has no package {SAMPLE}"))
}

/// Returns the manifest of the project. Outside of this workspace a program selects the version of the API types
/// itself.
fn manifest(name: &str, package: &Package, layout: &Layout) -> Result<String> {
    let mut text = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"{}\"\npublish = false\n",
        package.edition
    );
    if let Some(version) = &package.rust_version {
        writeln!(text, "rust-version = \"{version}\"")?;
    }
    let mut sections = BTreeMap::<String, BTreeMap<&str, String>>::new();
    for dependency in &package.dependencies {
        let lines = sections.entry(dependency.section()).or_default();
        lines.insert(&dependency.name, dependency.specification(layout)?);
    }
    for (section, lines) in sections {
        writeln!(text, "\n[{section}]")?;
        lines
            .iter()
            .try_for_each(|(name, specification)| writeln!(text, "{name} = {{ {specification} }}"))?;
    }
    if package.dependencies.is_empty() {
        bail!("the template has no dependencies");
    }
    text.push_str(STANDALONE);
    Ok(text)
}

impl Dependency {
    fn section(&self) -> String {
        let kind = self.kind.as_deref().map_or_else(String::new, |kind| format!("{kind}-"));
        match &self.target {
            Some(target) => format!("target.'{target}'.{kind}dependencies"),
            None => format!("{kind}dependencies"),
        }
    }

    fn specification(&self, layout: &Layout) -> Result<String> {
        let mut features = self.features.clone();
        if self.name == "k8s-openapi" && self.kind.is_none() {
            features.push(format!("v{}", env!("K8S_OPENAPI_ENABLED_VERSION").replace('.', "_")));
        }
        let mut parts = match &self.path {
            Some(path) => {
                let path = path.canonicalize()?;
                let below = path.strip_prefix(root().canonicalize()?);
                let below = below.context("a dependency is outside of the workspace")?;
                vec![format!("path = \"{}/{}\"", layout.to_clone, below.display())]
            }
            None => vec![format!("version = {:?}", self.req.trim_start_matches('^'))],
        };
        if !self.uses_default_features {
            parts.push("default-features = false".to_owned());
        }
        if !features.is_empty() {
            parts.push(format!("features = {features:?}"));
        }
        Ok(parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn error_of(result: Result<()>) -> String {
        format!("{:#}", result.expect_err("a failure"))
    }

    #[test]
    fn existing_folder_is_not_changed() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("shop");
        for file in [None, Some("notes.txt")] {
            fs::create_dir_all(&folder).expect("a folder");
            file.iter().for_each(|file| fs::write(folder.join(file), "mine").expect("written"));
            let error = error_of(write("shop-operator", &folder, &Origin::default()));
            assert!(error.ends_with("exists; choose another name or folder"), "{error}");
            assert_eq!(fs::read_dir(&folder).expect("a folder").count(), file.iter().count());
        }
    }

    #[test]
    fn failure_leaves_no_folder() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("shop");
        let file = |path: &str| (PathBuf::from(path), (String::new(), None));
        let error = error_of(create(&folder, &Files::from([file("a")]), || bail!("no index")));
        assert_eq!(error, "no index");
        // A file cannot be below a file.
        let error = error_of(create(&folder, &Files::from([file("a"), file("a/b")]), || Ok(())));
        assert!(error.starts_with("cannot create "), "{error}");
        for name in ["kube", "Shop"] {
            error_of(write(name, &folder, &Origin::default()));
        }
        assert_eq!(fs::read_dir(parent.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn project_has_its_own_name_and_resolves_without_network() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("shop");
        // Its imports have another order than those of the sample.
        write("all-operator", &folder, &Origin::default()).expect("written");
        output(cargo().current_dir(&folder).args(["fmt", "--check"])).expect("it is formatted");
        let all = template_files(&folder).expect("files");
        for file in
            ["src/main.rs", "chart/generate.sh", "chart/.helmignore", ".github/workflows/ci.yml", "Makefile"]
        {
            assert!(all.contains(&PathBuf::from(file)), "{file} is missing in {all:?}");
        }
        let is_executable = |file: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::metadata(folder.join(file)).expect("metadata").permissions().mode() & 0o111 != 0
        };
        assert!(is_executable("chart/generate.sh") && is_executable("tests/e2e.sh"));
        assert!(!is_executable("Cargo.toml"));
        let tree =
            output(cargo().current_dir(&folder).args(["tree", "--offline", "--locked", "--prefix=none"]));
        let tree = tree.expect("it resolves, and its lock is complete");
        assert!(tree.contains("\nwindlass-webhook v"), "{tree}");
        for (target, has_allocator) in [
            ("x86_64-unknown-linux-gnu", false),
            ("aarch64-apple-darwin", false),
            ("x86_64-unknown-linux-musl", true),
        ] {
            let tree = ["tree", "--offline", "--locked", "--prefix=none", "--target", target];
            let tree = output(cargo().current_dir(&folder).args(tree)).expect("it resolves");
            assert_eq!(tree.contains("\ntikv-jemallocator v"), has_allocator, "{target}: {tree}");
        }
        let workspace = read(&root().join("Cargo.lock")).expect("text");
        let lock = read(&folder.join("Cargo.lock")).expect("text");
        let (workspace, lock) = (versions(&workspace), versions(&lock));
        let other: Vec<_> = lock.difference(&workspace).collect();
        assert_eq!(other, ["all-operator 0.1.0"], "all other versions are those of this workspace");
        assert!(
            !lock.iter().any(|it| it.starts_with("xtask ")),
            "packages of this workspace remain in the lock"
        );
    }

    /// Returns a path without `..`.
    fn resolved(path: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                ".." => drop(parts.pop()),
                _ => parts.push(part),
            }
        }
        parts.join("/")
    }

    /// Returns the rest of each line that contains the text.
    fn values<'a>(text: &'a str, field: &str) -> Vec<&'a str> {
        text.lines().filter_map(|line| line.split_once(field)).map(|(_, value)| value.trim()).collect()
    }

    /// Returns name and version of each package in a lock.
    fn versions(lock: &str) -> BTreeSet<String> {
        let field = |package: &str, name| {
            values(package, name).first().map(|value| value.trim_matches('"').to_owned())
        };
        let packages = lock.split("[[package]]").skip(1);
        packages
            .map(|it| {
                format!(
                    "{} {}",
                    field(it, "name = ").expect("a name"),
                    field(it, "version = ").expect("a version")
                )
            })
            .collect()
    }

    #[test]
    fn project_contains_neither_the_sample_nor_the_path_of_the_clone() {
        let clone = root().canonicalize().expect("a path");
        let layout = Layout::new(&clone.with_file_name("shop"), &clone).expect("a layout");
        let files = project(&Names::of("shop-operator").expect("a name"), &layout, &Origin::of_clone())
            .expect("files");
        assert!(files[Path::new("README.md")].0.starts_with("# shop-operator\n"));
        for (path, (text, _)) in files {
            // A new folder replaces the packages of this workspace in the lock.
            let samples: &[&str] =
                if path.ends_with("Cargo.lock") { &[] } else { &[SAMPLE, "site_operator"] };
            for other in samples.iter().chain([&clone.to_str().expect("text")]) {
                assert!(!text.contains(other), "{} contains {other}", path.display());
            }
        }
    }

    #[test]
    fn template_with_a_name_is_a_new_project() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("template");
        write_template(&folder, &Origin::default()).expect("written");
        let layout = Layout::new(&root().with_file_name("shop-operator"), &root()).expect("a layout");
        let expected = project(&Names::of("shop-operator").expect("a name"), &layout, &Origin::default())
            .expect("files");
        let mut escapes = 0;
        for (path, (expected, permissions)) in &expected {
            let text = read(&folder.join(path)).expect("text");
            escapes += text.matches("{{ \"{{\" }}").count();
            let pairs = [
                ("{{project-name}}", "shop-operator"),
                ("{{crate_name}}", "shop_operator"),
                ("{{ \"{{\" }}", "{{"),
                ("{{ \"{%\" }}", "{%"),
            ];
            let pairs = pairs.map(|(from, to)| (from.to_owned(), to.to_owned()));
            assert_eq!(&replaced(&text, &pairs), expected, "{}", path.display());
            let copied = fs::metadata(folder.join(path)).expect("metadata").permissions();
            assert!(permissions.as_ref().is_none_or(|permissions| *permissions == copied));
        }
        assert!(escapes > 0, "the chart of the template has no expressions");
        let error = error_of(write_template(&folder, &Origin::default()));
        assert!(error.ends_with("exists; choose another name or folder"), "{error}");
    }

    #[test]
    fn workflows_check_out_windlass_where_the_project_expects_it() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let origin =
            Origin { repository: Some("acme/windlass-fork".to_owned()), commit: Some(commit.to_owned()) };
        let base = root().canonicalize().expect("a path");
        let base = base.parent().expect("a parent").to_owned();
        for folder in
            [base.join("shop"), base.join("site-operator"), std::env::temp_dir().join("windlass-shop")]
        {
            let layout = Layout::new(&folder, &root()).expect("a layout");
            let files =
                project(&Names::of("shop-operator").expect("a name"), &layout, &origin).expect("files");
            let text = |path: &str| files[Path::new(path)].0.as_str();
            let workflow = text(".github/workflows/ci.yml");
            let &[project, checkout] = &values(workflow, " path: ")[..] else { panic!("{workflow}") };
            for workflow in [workflow, text(".github/workflows/e2e.yml")] {
                assert_eq!(values(workflow, " path: "), [project, checkout]);
                assert_eq!(values(workflow, "working-directory: "), [project]);
                assert_eq!(
                    (values(workflow, "repository: "), values(workflow, "ref: ")),
                    (vec!["acme/windlass-fork"], vec![commit])
                );
            }
            let manifest = text("Cargo.toml");
            let windlass = values(manifest, "windlass = { path = \"");
            assert!(!windlass.is_empty(), "{manifest}");
            for dependency in windlass {
                let path = dependency.split('"').next().expect("a path");
                assert_eq!(resolved(&format!("{project}/{path}")), format!("{checkout}/runtime/windlass"));
                let here = resolved(&format!("{}/{path}", folder.display()));
                assert!(Path::new(&here).join("Cargo.toml").is_file(), "{here}");
            }
            let chart = values(text("chart/Chart.yaml"), "repository: file://");
            assert_eq!(chart.len(), 1);
            assert_eq!(
                resolved(&format!("{project}/chart/{}", chart[0])),
                format!("{checkout}/deploy/charts/operator-base")
            );
        }
    }
}

//! The binaries of the control plane, and Helm: finds them, or builds them once from source.
//!
//! Each binary is searched in the folder in `KUBEBUILDER_ASSETS`, as with envtest, and then in the user's cache, under
//! a key derived from its sources. Missing binaries are built with Go. If several processes need the same binary, one
//! builds it and the others wait.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::logs::print_line;

/// Version stamped into upstream's binaries, as in the release.
const VERSION: (&str, &str, &str) = ("v1.36.3", "1", "36");

/// Minimum Go version to build the control plane, major and minor.
const GO: (u32, u32) = (1, 26);

/// Stages of kwok's nodes and pods, as a file in the cache.
const STAGES: &str = "kwok-stages.yaml";

/// The interval between two progress reports of a build.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// A program of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binary {
    /// Storage backend of the API server.
    Etcd,
    /// API server.
    KubeApiserver,
    /// Upstream's controller manager.
    KubeControllerManager,
    /// Scheduler.
    KubeScheduler,
    /// Command-line client.
    Kubectl,
    /// Simulator of kubelets.
    Kwok,
    /// Prints kwok's stages; needed only to build [`Assets::kwok_stages`].
    KwokStages,
    /// Supervisor that kills a program when the harness process ends.
    Supervise,
}

impl Binary {
    /// All programs.
    pub const ALL: [Self; 8] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Kwok,
        Self::KwokStages,
        Self::Supervise,
    ];

    /// Returns the name of the file and of its source folder under `cmd/`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
            Self::KwokStages => "kwok-stages",
            Self::Supervise => "supervise",
        }
    }
}

/// Available binaries.
#[derive(Debug, Clone)]
pub struct Assets {
    cache: PathBuf,
    preferred: Option<PathBuf>,
}

impl Assets {
    /// Finds every binary and builds the missing ones. A build from scratch takes about four minutes on two cores; it
    /// blocks the thread.
    ///
    /// # Errors
    /// Returns an error if a binary is missing and Go is missing, too old or fails to build it, or if the cache is not
    /// writable.
    pub fn ensure() -> anyhow::Result<Self> {
        let source = source_folder();
        let assets = Self {
            cache: cache_folder()?.join(key(&source)?),
            preferred: std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from),
        };
        if !assets.missing().is_empty() {
            assets.build_missing(&source)?;
        }
        Ok(assets)
    }

    /// Returns the path of `binary`.
    #[must_use]
    pub fn path(&self, binary: Binary) -> PathBuf {
        let preferred = self.preferred.as_ref().map(|folder| folder.join(binary.name()));
        preferred.filter(|path| path.is_file()).unwrap_or_else(|| self.cache.join(binary.name()))
    }

    /// Returns the file with the stages of kwok's nodes and pods.
    #[must_use]
    pub fn kwok_stages(&self) -> PathBuf {
        self.cache.join(STAGES)
    }

    /// Returns the folder of binaries built from source.
    #[must_use]
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    fn missing(&self) -> Vec<Binary> {
        let mut missing: Vec<Binary> =
            Binary::ALL.into_iter().filter(|binary| !self.path(*binary).is_file()).collect();
        if !self.kwok_stages().is_file() && !missing.contains(&Binary::KwokStages) {
            missing.push(Binary::KwokStages);
        }
        missing
    }

    fn build_missing(&self, source: &Path) -> anyhow::Result<()> {
        let go = Go::find(source)?;
        let _lock = lock_build(&self.cache)?;
        // The previous holder of the lock might have built all of them.
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.iter().map(|binary| binary.name()).collect();
        print_line(&format!(
            "building {} from source once; a build from scratch takes about four minutes on two idle cores",
            names.join(", ")
        ));
        let started = Instant::now();
        let mains: Vec<_> = names.iter().map(|name| format!("./cmd/{name}")).collect();
        go.build_into(&self.cache, &mains, &names, &linker_flags())?;
        if missing.contains(&Binary::KwokStages) {
            self.write_stages()?;
        }
        print_line(&format!("built in {} s into {}", started.elapsed().as_secs(), self.cache.display()));
        Ok(())
    }

    fn write_stages(&self) -> anyhow::Result<()> {
        let output = Command::new(self.path(Binary::KwokStages)).output()?;
        let stages = succeeded(output, "kwok-stages")?;
        let temporary = tempfile::NamedTempFile::new_in(&self.cache)?;
        fs::write(temporary.path(), stages)?;
        temporary.persist(self.kwok_stages())?;
        Ok(())
    }
}

/// The Go package of Helm. Its module pins the version, apart from the versions that the control plane needs.
const HELM: &str = "helm.sh/helm/v4/cmd/helm";

/// Finds Helm in the user's cache, or builds it from source once; that takes about five minutes on two idle cores and
/// blocks the thread.
///
/// # Errors
/// Returns an error if Helm is missing and Go is missing, too old or fails to build it, or if the cache is not
/// writable.
pub fn helm() -> anyhow::Result<PathBuf> {
    let source = source_folder().join("helm");
    let mut hasher = DefaultHasher::new();
    for name in ["go.mod", "go.sum"] {
        hasher.write(&fs::read(source.join(name)).with_context(|| format!("reading {name} of helm"))?);
    }
    let cache = cache_folder()?.with_file_name("helm").join(format!("{:016x}", hasher.finish()));
    let path = cache.join("helm");
    if path.is_file() {
        return Ok(path);
    }
    let _lock = lock_build(&cache)?;
    // The previous holder of the lock might have built it.
    if !path.is_file() {
        print_line(
            "building helm from source once; a build from scratch takes about five minutes on two idle cores",
        );
        Go::find(&source)?.build_into(&cache, &[HELM.to_owned()], &["helm"], "-s -w")?;
    }
    Ok(path)
}

/// The programs of Prometheus.
#[derive(Clone, Debug)]
pub struct Prometheus {
    /// `prometheus`, the server.
    pub server: PathBuf,
    /// `promtool`, which checks rules and tests alerts.
    pub promtool: PathBuf,
}

/// Finds the programs of Prometheus: in `PATH`, in the user's cache, or in the package of the distribution, which is
/// downloaded and unpacked into the cache once. It blocks the thread.
///
/// # Errors
/// Returns an error if a program is missing, and the package cannot be downloaded or unpacked.
pub fn prometheus() -> anyhow::Result<Prometheus> {
    if let (Some(server), Some(promtool)) = (installed("prometheus"), installed("promtool")) {
        return Ok(Prometheus { server, promtool });
    }
    let cache = cache_folder()?.with_file_name("prometheus");
    let programs = cache.join("programs");
    let _lock = lock_build(&cache)?;
    if !programs.is_dir() {
        print_line("downloading Prometheus once, in the Debian package `prometheus`");
        download_prometheus(&cache, &programs).context("install prometheus and promtool")?;
    }
    Ok(Prometheus { server: programs.join("prometheus"), promtool: programs.join("promtool") })
}

/// Downloads the package and moves its folder of programs, so that the folder is complete.
fn download_prometheus(cache: &Path, programs: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(cache)?;
    let run = |program: &str, arguments: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(folder.path()).output();
        let output = output.with_context(|| format!("running {program}"))?;
        succeeded(output, program).map(drop)
    };
    // Own lists of packages: those of the system can be missing, and only root can update them.
    fs::create_dir_all(folder.path().join("lists/partial"))?;
    let lists = format!("Dir::State::lists={}", folder.path().join("lists").display());
    run("apt-get", &["-o", &lists, "update"])?;
    run("apt-get", &["-o", &lists, "download", "prometheus"])?;
    let entries = fs::read_dir(folder.path())?.collect::<Result<Vec<_>, _>>()?;
    let mut names = entries.iter().filter_map(|entry| entry.file_name().into_string().ok());
    let package = names.find(|name| name.ends_with(".deb")).context("apt-get downloaded no package")?;
    run("dpkg-deb", &["--extract", &package, "unpacked"])?;
    let unpacked = folder.path().join("unpacked/usr/bin");
    for name in ["prometheus", "promtool"] {
        ensure!(unpacked.join(name).is_file(), "the package contains no {name}");
    }
    fs::rename(unpacked, programs).context("moving the programs into the cache")
}

/// Returns the first program of this name in `PATH`.
pub fn installed(program: &str) -> Option<PathBuf> {
    // Without the variable nothing is found, and the caller names the missing program.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates.find(|path| path.is_file())
}

/// Locks a folder of built programs until the file is dropped, and creates the folder first if necessary.
fn lock_build(cache: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    let lock = File::create(cache.join("build.lock"))?;
    lock.lock().with_context(|| format!("cannot lock the build in {}", cache.display()))?;
    Ok(lock)
}

/// A sufficiently new Go.
struct Go {
    source: PathBuf,
}

impl Go {
    fn find(source: &Path) -> anyhow::Result<Self> {
        let wanted = format!(
            "control plane and Helm are built from source: install Go {}.{} or later (https://go.dev/dl)",
            GO.0, GO.1
        );
        let go = Self { source: source.to_owned() };
        // In the module's folder, Go reports the toolchain that the module selects.
        let output = match go.command().args(["env", "GOVERSION"]).output() {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("`go` was not found; {wanted}"),
            Err(error) => return Err(error).context("running `go env GOVERSION`"),
        };
        let version = succeeded(output, "go env GOVERSION").with_context(|| wanted.clone())?;
        ensure!(
            parse_go_version(version.trim()).is_some_and(|found| found >= GO),
            "`go` is {}, which is too old; {wanted}",
            version.trim()
        );
        Ok(go)
    }

    /// Builds into a temporary folder and then moves each file, so that files in the cache are complete.
    fn build_into(&self, cache: &Path, mains: &[String], names: &[&str], flags: &str) -> anyhow::Result<()> {
        let temporary = tempfile::tempdir_in(cache)?;
        self.build(mains, flags, temporary.path())?;
        for name in names {
            fs::rename(temporary.path().join(name), cache.join(name))
                .with_context(|| format!("moving {name} into {}", cache.display()))?;
        }
        Ok(())
    }

    /// Builds the programs and reports progress.
    fn build(&self, mains: &[String], flags: &str, into: &Path) -> anyhow::Result<()> {
        let mut build = self.command();
        build.args(["build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", flags]);
        let mut child = build
            .arg("-o")
            .arg(into)
            .args(mains)
            .stderr(Stdio::piped())
            .spawn()
            .context("running `go build`")?;
        let output = child.stderr.take().context("`go build` has no standard error")?;
        let errors = Progress::new(self.stale_packages(mains, flags)).follow(output)?;
        let status = child.wait().context("waiting for `go build`")?;
        ensure!(status.success(), "`go build` of {} failed: {status}\n{errors}", mains.join(", "));
        Ok(())
    }

    /// Counts the packages that a build compiles. `None` if Go cannot list them, for example before their download.
    fn stale_packages(&self, mains: &[String], flags: &str) -> Option<usize> {
        let mut list = self.command();
        list.args(["list", "-deps", "-mod=readonly", "-trimpath", "-ldflags", flags]);
        let output = list.args(["-f", "{{if .Stale}}{{.ImportPath}}{{end}}"]).args(mains).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).lines().count())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("go");
        command.current_dir(&self.source).env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOFLAGS");
        command
    }
}

/// Progress of `go build -v`, which prints the name of each package that it compiles.
struct Progress {
    started: Instant,
    reported: Instant,
    total: Option<usize>,
    modules: usize,
    packages: usize,
}

impl Progress {
    fn new(total: Option<usize>) -> Self {
        let now = Instant::now();
        Self { started: now, reported: now, total, modules: 0, packages: 0 }
    }

    /// Reads the output to its end, reports progress, and returns the lines that are errors.
    fn follow(mut self, output: impl Read + Send + 'static) -> io::Result<String> {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| sender.send(line)));
        let mut errors = String::new();
        loop {
            // Go prints nothing while it links: the interval passes without a line.
            match lines.recv_timeout(PROGRESS_INTERVAL.saturating_sub(self.reported.elapsed())) {
                Ok(line) => errors += &self.count(line?),
                Err(RecvTimeoutError::Timeout) => {
                    self.reported = Instant::now();
                    print_line(&self.line(self.started.elapsed()));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(errors),
            }
        }
    }

    /// Counts a line, or returns it if it is part of an error.
    fn count(&mut self, line: String) -> String {
        if line.starts_with("go: downloading ") {
            self.modules += 1;
        } else if is_package(&line) {
            self.packages += 1;
        } else {
            return line + "\n";
        }
        String::new()
    }

    fn line(&self, elapsed: Duration) -> String {
        let compiled = match self.total {
            // The total is an estimate from the package list, which lacks generated packages.
            Some(total) => format!("{} of {} packages compiled", self.packages, total.max(self.packages)),
            None => format!("{} packages compiled", self.packages),
        };
        let downloaded = match self.modules {
            0 => String::new(),
            modules => format!("{modules} modules downloaded, "),
        };
        format!("building: {downloaded}{compiled}, {} s", elapsed.as_secs())
    }
}

/// Whether a line of `go build -v` is the import path of a package.
fn is_package(line: &str) -> bool {
    !line.is_empty() && line.chars().all(|c| c.is_ascii_alphanumeric() || "/._-~+".contains(c))
}

/// Returns linker flags that stamp the version like upstream's build, in both modules that report one.
fn linker_flags() -> String {
    let (version, major, minor) = VERSION;
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)] {
            flags += &format!(" -X {package}.{name}={value}");
        }
    }
    flags
}

fn parse_go_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("go")?.split(['.', 'r', 'b', '-', ' ']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn succeeded(output: Output, what: &str) -> anyhow::Result<String> {
    ensure!(
        output.status.success(),
        "`{what}` failed: {}; {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the folder of the Go module, next to this crate.
fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane")
}

/// Returns the folder in the user's cache with one subfolder per version of the control plane.
pub(crate) fn cache_folder() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .context("no cache folder: neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("windlass").join("control-plane"))
}

/// Returns a key that changes with the sources and the build flags.
fn key(source: &Path) -> anyhow::Result<String> {
    // The hash needs no collision resistance, and a changed hash only causes one build.
    let mut hasher = DefaultHasher::new();
    hasher.write(linker_flags().as_bytes());
    for path in sources(source)? {
        hasher.write(path.as_os_str().as_encoded_bytes());
        let text = fs::read(source.join(&path)).with_context(|| format!("reading {}", path.display()))?;
        hasher.write(&text);
    }
    Ok(format!("{}-{:016x}", VERSION.0, hasher.finish()))
}

/// Returns the source files that determine the binaries, in a fixed order, relative to the module.
fn sources(source: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::from([PathBuf::from("go.mod"), PathBuf::from("go.sum")]);
    let read = |folder: &Path| {
        fs::read_dir(source.join(folder))
            .with_context(|| format!("listing {}", source.join(folder).display()))
    };
    for entry in read(Path::new("cmd"))? {
        let folder = Path::new("cmd").join(entry?.file_name());
        for file in read(&folder)? {
            let path = folder.join(file?.file_name());
            if path.extension() == Some(OsStr::new("go")) {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn go_versions_compare_as_numbers() {
        assert_eq!(parse_go_version("go1.26.8"), Some((1, 26)));
        assert_eq!(parse_go_version("go1.27rc1"), Some((1, 27)));
        assert!(parse_go_version("go1.9").unwrap() < GO);
        assert_eq!(parse_go_version("devel"), None);
    }

    #[test]
    fn progress_counts_packages_and_keeps_errors() {
        let output = "go: downloading k8s.io/api v0.36.3\nk8s.io/api/core/v1\ngo.uber.org/zap\n# k8s.io/x\nx.go:1: broken\n";
        let errors = Progress::new(Some(7)).follow(Cursor::new(output)).unwrap();
        assert_eq!(errors, "# k8s.io/x\nx.go:1: broken\n");
        let progress = Progress { modules: 1, packages: 2, ..Progress::new(Some(7)) };
        let line = progress.line(Duration::from_secs(12));
        assert_eq!(line, "building: 1 modules downloaded, 2 of 7 packages compiled, 12 s");
    }

    #[test]
    fn key_changes_with_a_main_and_not_with_other_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("cmd/etcd")).unwrap();
        for name in ["go.mod", "go.sum", "cmd/etcd/main.go"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let before = key(folder.path()).unwrap();
        fs::write(folder.path().join("cmd/etcd/README"), "words").unwrap();
        assert_eq!(key(folder.path()).unwrap(), before);
        fs::write(folder.path().join("cmd/etcd/main.go"), "other").unwrap();
        assert_ne!(key(folder.path()).unwrap(), before);
    }

    #[test]
    fn provided_binary_has_precedence_over_built_binary() {
        let provided = tempfile::tempdir().unwrap();
        fs::write(provided.path().join("etcd"), "").unwrap();
        let assets = Assets { cache: PathBuf::from("/cache"), preferred: Some(provided.path().to_owned()) };
        assert_eq!(assets.path(Binary::Etcd), provided.path().join("etcd"));
        assert_eq!(assets.path(Binary::Kwok), Path::new("/cache/kwok"));
        assert!(!assets.missing().contains(&Binary::Etcd));
    }

    #[test]
    fn every_binary_has_a_main() {
        for binary in Binary::ALL {
            assert!(source_folder().join("cmd").join(binary.name()).join("main.go").is_file(), "{binary:?}");
        }
    }
}

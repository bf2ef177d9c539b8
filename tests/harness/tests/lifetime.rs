//! Nothing outlives the process that started a plane, and a missing Go is said to be missing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long what must go may take to go.
const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn killed_process_leaves_no_children_and_no_files() {
    let mut probe = Command::new(env!("CARGO_BIN_EXE_harness-probe"))
        .arg("hold")
        .env_remove("WINDLASS_KEEP_LOGS")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let logs = await_plane(&mut probe);
    let run = logs.parent().unwrap();
    let programs = processes_below(probe.id());
    // Six programs, each with its supervisor, and the janitor.
    assert!(programs.len() >= 11, "expected a whole plane, found {programs:?}");
    let data = data_folder(&programs);

    probe.kill().unwrap();
    probe.wait().unwrap();

    until("every process is gone", || programs.iter().all(|pid| !is_alive(*pid)));
    until("every file is gone", || !run.exists() && !data.exists());
}

#[test]
fn program_that_ends_fails_the_start_in_its_own_words_and_leaves_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_harness-probe"))
        .args(["hold", "serviceaccount-controller", "no-such-controller"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("kube-controller-manager ended"), "{complaint}");
    assert!(complaint.contains("not in the list of known controllers"), "{complaint}");
    let kept =
        complaint.split_once("logs are kept in ").expect("the folder is named").1.lines().next().unwrap();
    assert!(Path::new(kept).join("kube-apiserver.log").is_file(), "{kept} has no log");
}

// parity: manager-client-envtest
#[test]
fn missing_go_is_named_with_what_to_install() {
    let complaint = complaint_of_assets(Path::new("/nonexistent"));
    assert!(complaint.contains("`go` was not found"), "{complaint}");
    assert!(complaint.contains("install Go 1.26 or later"), "{complaint}");
}

#[test]
fn go_that_is_too_old_is_told_apart_from_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    write_script(&folder.path().join("go"), "#!/bin/sh\necho go1.25.3\n");
    let complaint = complaint_of_assets(folder.path());
    assert!(complaint.contains("`go` is go1.25.3, which is too old"), "{complaint}");
    assert!(complaint.contains("install Go 1.26 or later"), "{complaint}");
}

#[test]
fn go_that_refuses_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    write_script(&folder.path().join("go"), "#!/bin/sh\necho no toolchain today >&2\nexit 1\n");
    let complaint = complaint_of_assets(folder.path());
    assert!(complaint.contains("no toolchain today"), "{complaint}");
    assert!(complaint.contains("install Go 1.26 or later"), "{complaint}");
}

/// What finding the binaries says with an empty cache and only `path` to look for programs in.
fn complaint_of_assets(path: &Path) -> String {
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_harness-probe"))
        .arg("assets")
        .env("PATH", path)
        .env("XDG_CACHE_HOME", cache.path())
        .env_remove("KUBEBUILDER_ASSETS")
        .output()
        .unwrap();
    assert!(!output.status.success(), "binaries were found in an empty cache");
    String::from_utf8(output.stderr).unwrap()
}

fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until the probe's plane is ready; returns its folder of logs.
fn await_plane(probe: &mut Child) -> PathBuf {
    let mut lines = BufReader::new(probe.stdout.take().unwrap()).lines();
    let logs = lines.next().expect("the probe has a plane").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    PathBuf::from(logs)
}

/// All descendants of a process.
fn processes_below(ancestor: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_field(pid, 1)?.parse().ok()
}

/// A zombie counts as gone: it is what is left until its parent looks.
fn is_alive(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| state != "Z")
}

/// A field of `/proc/<pid>/stat`, counted after the name, which may hold blanks itself.
fn stat_field(pid: u32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(index).map(String::from)
}

/// Where the plane's etcd keeps its data.
fn data_folder(programs: &[u32]) -> PathBuf {
    let argument = programs.iter().find_map(|pid| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        command.split('\0').find_map(|argument| argument.strip_prefix("--data-dir=").map(PathBuf::from))
    });
    let folder = argument.expect("etcd runs").parent().unwrap().to_owned();
    assert!(folder.exists());
    folder
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

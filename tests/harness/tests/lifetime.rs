//! Tests that no process outlives the process that started a control plane, and that a missing Go is reported.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout for processes to exit.
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
    assert!(programs.len() >= 11, "expected a complete control plane, found {programs:?}");
    let data = data_folder(&programs);

    probe.kill().unwrap();
    probe.wait().unwrap();

    until("every process has exited", || programs.iter().all(|pid| !is_alive(*pid)));
    until("every file is removed", || !run.exists() && !data.exists());
}

#[test]
fn exit_of_a_program_fails_the_start_and_keeps_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_harness-probe"))
        .args(["hold", "serviceaccount-controller", "no-such-controller"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("kube-controller-manager exited"), "{complaint}");
    assert!(complaint.contains("not in the list of known controllers"), "{complaint}");
    let kept =
        complaint.split_once("logs are kept in ").expect("the folder is named").1.lines().next().unwrap();
    assert!(Path::new(kept).join("kube-apiserver.log").is_file(), "{kept} has no log");
}

// parity: manager-client-envtest
#[test]
fn missing_go_is_reported_with_the_remedy() {
    let complaint = complaint_of_assets(Path::new("/nonexistent"));
    assert!(complaint.contains("`go` was not found"), "{complaint}");
    assert!(complaint.contains("install Go 1.26 or later"), "{complaint}");
}

#[test]
fn too_old_go_is_distinguished_from_missing_go() {
    let folder = tempfile::tempdir().unwrap();
    write_script(&folder.path().join("go"), "#!/bin/sh\necho go1.25.3\n");
    let complaint = complaint_of_assets(folder.path());
    assert!(complaint.contains("`go` is go1.25.3, which is too old"), "{complaint}");
    assert!(complaint.contains("install Go 1.26 or later"), "{complaint}");
}

#[test]
fn error_of_go_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    write_script(&folder.path().join("go"), "#!/bin/sh\necho no toolchain today >&2\nexit 1\n");
    let complaint = complaint_of_assets(folder.path());
    assert!(complaint.contains("no toolchain today"), "{complaint}");
    assert!(complaint.contains("install Go 1.26 or later"), "{complaint}");
}

/// Returns the error of finding the binaries with an empty cache and only `path` as `PATH`.
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

/// Waits until the probe's control plane is ready. Returns its log folder.
fn await_plane(probe: &mut Child) -> PathBuf {
    let mut lines = BufReader::new(probe.stdout.take().unwrap()).lines();
    let logs = lines.next().expect("the probe has a control plane").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    PathBuf::from(logs)
}

/// Returns all descendants of a process.
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

/// A zombie counts as exited: it only remains until its parent reaps it.
fn is_alive(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| state != "Z")
}

/// Returns a field of `/proc/<pid>/stat`, counted after the name, which can contain spaces.
fn stat_field(pid: u32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(index).map(String::from)
}

/// Returns the data folder of the control plane's etcd.
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

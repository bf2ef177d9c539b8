//! The demo as a program, with each control plane: its pods become ready, and a signal ends it in order.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Runs the demo until `last` is printed, interrupts it, and returns everything that it printed.
fn interrupted_after(last: &str, arguments: &[&str]) -> Vec<String> {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_windlass-demo"))
        .args(["--plain", "--scale=2", "--nodes=1"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = Vec::new();
    for line in BufReader::new(demo.stdout.take().expect("piped")).lines() {
        let line = line.expect("UTF-8");
        if line.contains(last) {
            interrupt(&demo);
        }
        lines.push(line);
    }
    let status = demo.wait().expect("it ends");
    assert!(status.success(), "{status}: {lines:#?}");
    lines
}

fn interrupt(demo: &Child) {
    kill_process(Pid::from_child(demo), Signal::INT).expect("it runs");
}

fn assert_demonstrated(lines: &[String]) {
    for shown in [
        "pods created: default/web-",
        "pods ready: default/web-",
        "reports 2 of 2 ready",
        "Everything has ended.",
    ] {
        assert!(lines.iter().any(|line| line.contains(shown)), "{shown} is missing: {lines:#?}");
    }
}

/// The path that the line `export KUBECONFIG=` names.
fn kubeconfig(lines: &[String]) -> &Path {
    let path = lines.iter().find_map(|line| line.split_once("export KUBECONFIG="));
    Path::new(path.expect("it tells where the kubeconfig is").1)
}

#[test]
fn demo_in_one_process_leaves_nothing_but_the_state_that_was_requested() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = format!("--state={}", folder.path().join("state").display());
    let lines = interrupted_after("reports 2 of 2 ready", &[&state]);
    assert_demonstrated(&lines);
    assert!(!kubeconfig(&lines).exists());
    let continued = interrupted_after("pods ready", &[&state]);
    assert!(!continued.iter().any(|line| line.contains("wants 3 pods")), "{continued:#?}");
    assert!(continued.iter().any(|line| line.contains("reports 2 of 2 ready")), "{continued:#?}");
}

#[test]
fn demo_on_real_control_plane_ends_its_processes() {
    let lines = interrupted_after("reports 2 of 2 ready", &["--control-plane=real"]);
    assert_demonstrated(&lines);
    let kubectl = lines.iter().find_map(|line| line.split_once("alias kubectl=")).expect("it names kubectl");
    assert!(Path::new(kubectl.1).is_file());
    assert!(!kubeconfig(&lines).exists());
}

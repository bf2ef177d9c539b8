//! Runs the demo as a program, with each control plane: pods become ready, kubectl works, and a signal stops the demo
//! gracefully.

mod kubectl;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use self::kubectl::Kubectl;

/// Runs the demo until `last` is printed, interrupts it, and returns everything that it printed.
fn interrupted_after(last: &str, arguments: &[&str]) -> Vec<String> {
    used_after(last, arguments, |_| {})
}

/// Runs the demo until `last` is printed and `user`, who gets the lines so far, has finished. Interrupts it, and
/// returns everything that it printed.
fn used_after(last: &str, arguments: &[&str], user: impl FnOnce(&[String]) + Send) -> Vec<String> {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_windlass-demo"))
        .args(["--plain", "--nodes=1"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = BufReader::new(demo.stdout.take().expect("piped"));
    let pid = Pid::from_child(&demo);
    let (mut lines, mut user) = (Vec::new(), Some(user));
    thread::scope(|scope| {
        for line in output.lines() {
            lines.push(line.expect("UTF-8"));
            // A second signal would abort the demo.
            if lines.last().is_some_and(|line| line.contains(last))
                && let Some(user) = user.take()
            {
                let (lines, interrupt) = (lines.clone(), Interrupt(pid));
                scope.spawn(move || {
                    user(&lines);
                    drop(interrupt);
                });
            }
        }
    });
    let status = demo.wait().expect("it ends");
    assert!(status.success(), "{status}: {lines:#?}");
    assert!(user.is_none(), "{last:?} was not printed: {lines:#?}");
    lines
}

/// Interrupts a process when it is dropped, even by a failed assertion.
struct Interrupt(Pid);

impl Drop for Interrupt {
    fn drop(&mut self) {
        kill_process(self.0, Signal::INT).expect("it runs");
    }
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

/// Returns the path in the line `export KUBECONFIG=`.
fn kubeconfig(lines: &[String]) -> &Path {
    let path = lines.iter().find_map(|line| line.split_once("export KUBECONFIG="));
    Path::new(path.expect("the output contains the kubeconfig").1)
}

/// Asserts that the address of the cluster accepts no connections.
fn assert_server_ended(lines: &[String]) {
    let url = lines.iter().find_map(|line| line.split_once("A cluster is served on "));
    let url = url.expect("the output contains the address").1;
    let address = url.split("://").nth(1).and_then(|rest| rest.split(['/', ' ']).next()).expect("a URL");
    let address = address.trim_end_matches('.');
    assert!(std::net::TcpStream::connect(address).is_err(), "{address} is still served");
}

#[test]
fn in_process_demo_continues_from_saved_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = format!("--state={}", folder.path().join("state").display());
    let lines = interrupted_after("reports 2 of 2 ready", &["--scale=2", &state]);
    assert_demonstrated(&lines);
    assert_server_ended(&lines);
    assert!(!kubeconfig(&lines).exists());
    // An empty cluster has no workload.
    interrupted_after("reports 2 of 2 ready", &["--scale=0", "--duration=60s", &state]);
}

#[test]
fn demo_copes_with_faults() {
    let lines = interrupted_after("pods created: default/web-", &["--scale=2", "--faults"]);
    assert!(lines.last().is_some_and(|line| line.contains("Everything has ended.")), "{lines:#?}");
}

/// The values in the picture differ from run to run; its headings do not.
#[test]
fn picture_in_the_documentation_shows_the_screen_of_today() {
    let folder = tempfile::tempdir().expect("a folder");
    let picture = folder.path().join("demo.svg");
    let kubeconfig = "--kubeconfig-out=demo.kubeconfig";
    let demo = Command::new(env!("CARGO_BIN_EXE_windlass-demo"))
        .args(["--plain", "--duration=4s", "--picture=demo.svg", kubeconfig])
        .current_dir(folder.path())
        .output()
        .expect("it starts");
    assert!(demo.status.success(), "{demo:?}");
    let drawn = fs::read_to_string(&picture).expect("a picture");
    let drawn = drawn.replace(&format!("{}/", folder.path().display()), "");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.svg");
    if env::var_os("WRITE_DOCS").is_some() {
        fs::write(&page, &drawn).expect("docs/ is writable");
    }
    let documented = fs::read_to_string(&page).unwrap_or_default();
    assert!(headings(&drawn).contains(&"CONTROLLER".to_owned()), "{drawn}");
    assert_eq!(
        headings(&documented),
        headings(&drawn),
        "docs/demo.svg is stale; run `WRITE_DOCS=1 cargo test -p windlass-demo picture`"
    );
}

/// Returns the words in bold.
fn headings(svg: &str) -> Vec<String> {
    let bold = svg.split("font-weight=\"bold\">").skip(1).filter_map(|rest| rest.split('<').next());
    bold.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn kubectl_rolls_out_workloads_in_process() {
    let lines = used_after("reports 2 of 2 ready", &["--scale=2"], |lines| {
        let kubectl = Kubectl::new(kubeconfig(lines));
        for kind in ["Deployment", "DaemonSet", "StatefulSet"] {
            kubectl.roll_out(kind);
        }
        kubectl.cannot_wait_for_dependents("deployment/web");
    });
    assert_server_ended(&lines);
}

#[test]
fn demo_on_real_control_plane_ends_its_processes() {
    let arguments = ["--scale=2", "--control-plane=real"];
    let lines = used_after("reports 2 of 2 ready", &arguments, |lines| {
        Kubectl::new(kubeconfig(lines)).roll_out("Deployment");
    });
    assert_demonstrated(&lines);
    assert_server_ended(&lines);
    let kubectl = lines.iter().find_map(|line| line.split_once("alias kubectl=")).expect("it names kubectl");
    assert!(Path::new(kubectl.1).is_file());
    assert!(!kubeconfig(&lines).exists());
}

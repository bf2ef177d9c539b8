//! Decides the next step of a pod on a node. Pure functions of the pod, the options and the time.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, HostIP, Pod,
    PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass_object::condition;
use windlass_object::owner::controller_of;
use windlass_object::time::seconds;

use super::{NodeOptions, annotations};

/// Next step for a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodAction {
    /// No action until the pod changes.
    Nothing,
    /// The next step is due after this time.
    Wait(Duration),
    /// The pod starts to run, for the first time or again.
    Run {
        /// Number of restarts of its containers.
        restarts: i32,
    },
    /// Its containers have terminated and are not restarted.
    End {
        /// Exit code of the containers.
        exit_code: i32,
    },
    /// The pod has terminated and can be removed from the API server.
    Remove,
}

/// Returns the next step for `pod`.
pub(super) fn next(pod: &Pod, options: &NodeOptions, now: Timestamp) -> PodAction {
    if pod.metadata.deletion_timestamp.is_some() {
        return leaving(pod, now);
    }
    match phase(pod) {
        "Succeeded" | "Failed" => PodAction::Nothing,
        "Running" => running(pod, options, now),
        _ => starting(pod, options, now),
    }
}

fn starting(pod: &Pod, options: &NodeOptions, now: Timestamp) -> PodAction {
    let bound = condition(pod, "PodScheduled").and_then(|it| it.last_transition_time.as_ref());
    let since = bound.or(pod.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
    due(since, options.starts_in, now).map_or(PodAction::Run { restarts: 0 }, PodAction::Wait)
}

fn running(pod: &Pod, options: &NodeOptions, now: Timestamp) -> PodAction {
    let Some(runs_for) = asked(pod, annotations::RUNS_FOR).or_else(|| job_time(pod, options)) else {
        return PodAction::Nothing;
    };
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    let started = status.and_then(|it| it.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    if let Some(left) = due(started.map_or(now, |time| time.0), runs_for, now) {
        return PodAction::Wait(left);
    }
    let exit_code = exit_code(pod);
    match restart_policy(pod) {
        "Never" => PodAction::End { exit_code },
        "OnFailure" if exit_code == 0 => PodAction::End { exit_code },
        _ => PodAction::Run { restarts: status.map_or(0, |it| it.restart_count) + 1 },
    }
}

/// Returns the next step for a pod that is being deleted. Its deletion timestamp is the end of its grace period.
fn leaving(pod: &Pod, now: Timestamp) -> PodAction {
    if matches!(phase(pod), "Succeeded" | "Failed") {
        return PodAction::Remove;
    }
    let over = pod.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let grace = Duration::from_secs(
        pod.metadata.deletion_grace_period_seconds.and_then(|it| u64::try_from(it).ok()).unwrap_or(0),
    );
    let asked_at = over.saturating_sub(SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX));
    let stops_in = asked(pod, annotations::STOPS_IN).unwrap_or(Duration::ZERO);
    let killed = stops_in > grace;
    match due(asked_at.unwrap_or(now), stops_in.min(grace), now) {
        Some(left) => PodAction::Wait(left),
        None if phase(pod) == "Running" => PodAction::End { exit_code: if killed { 137 } else { 0 } },
        None => PodAction::Remove,
    }
}

/// Returns the status of a pod that runs from `now`. Fields that a node does not report stay unchanged.
pub(super) fn run(pod: &Pod, restarts: i32, address: Ipv4Addr, host: &str, now: Timestamp) -> PodStatus {
    let ready = annotation(pod, annotations::READY) != Some("false");
    let state = ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(seconds(now)) }),
        ..ContainerState::default()
    };
    PodStatus {
        phase: Some("Running".into()),
        observed_generation: pod.metadata.generation,
        host_ip: Some(host.to_owned()),
        host_ips: Some(vec![HostIP { ip: host.to_owned() }]),
        pod_ip: Some(address.to_string()),
        pod_ips: Some(vec![PodIP { ip: address.to_string() }]),
        start_time: Some(start_time(pod).unwrap_or_else(|| seconds(now))),
        conditions: Some(conditions(pod, ready, None, now)),
        container_statuses: Some(containers(pod, &state, ready, restarts)),
        ..pod.status.clone().unwrap_or_default()
    }
}

/// Returns the status of a pod whose containers have terminated at `now` and are not restarted.
pub(super) fn end(pod: &Pod, exit_code: i32, now: Timestamp) -> PodStatus {
    let state = ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            reason: Some(if exit_code == 0 { "Completed" } else { "Error" }.into()),
            started_at: start_time(pod),
            finished_at: Some(seconds(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let before = pod.status.as_ref().and_then(|it| it.container_statuses.as_ref()?.first());
    let restarts = before.map_or(0, |it| it.restart_count);
    PodStatus {
        phase: Some(if exit_code == 0 { "Succeeded" } else { "Failed" }.into()),
        observed_generation: pod.metadata.generation,
        conditions: Some(conditions(pod, false, Some(exit_code), now)),
        container_statuses: Some(containers(pod, &state, false, restarts)),
        ..pod.status.clone().unwrap_or_default()
    }
}

fn containers(pod: &Pod, state: &ContainerState, ready: bool, restart_count: i32) -> Vec<ContainerStatus> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let status = |container: &k8s_openapi::api::core::v1::Container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready,
        started: Some(state.running.is_some()),
        restart_count,
        state: Some(state.clone()),
        ..ContainerStatus::default()
    };
    containers.map(status).collect()
}

/// Returns all conditions of the pod with those of its containers updated. An unchanged condition keeps its transition
/// time. `exit_code` is that of a pod that has ended.
fn conditions(pod: &Pod, ready: bool, exit_code: Option<i32>, now: Timestamp) -> Vec<PodCondition> {
    let ended = exit_code.map(|code| if code == 0 { "PodCompleted" } else { "PodFailed" });
    let runs = ended.is_none();
    let waits = (runs && !ready).then_some("ContainersNotReady");
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    for (type_, holds, reason) in [
        ("PodReadyToStartContainers", runs, None),
        ("Initialized", true, ended.filter(|_| exit_code == Some(0))),
        ("Ready", ready, ended.or(waits)),
        ("ContainersReady", ready, ended.or(waits)),
        ("PodScheduled", true, None),
    ] {
        let renewed = PodCondition {
            type_: type_.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            observed_generation: pod.metadata.generation,
            reason: reason.map(str::to_owned),
            last_transition_time: Some(seconds(now)),
            ..PodCondition::default()
        };
        condition::set(&mut conditions, renewed);
    }
    conditions
}

/// Returns the time left until `after` has passed since `since`, or `None` if it has passed.
fn due(since: Timestamp, after: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
    let left = after.saturating_sub(passed);
    (!left.is_zero()).then_some(left)
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    condition::find(pod.status.as_ref()?.conditions.as_deref()?, type_)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

fn start_time(pod: &Pod) -> Option<Time> {
    pod.status.as_ref()?.start_time.clone()
}

fn restart_policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Returns the duration in an annotation of the pod. An invalid value counts as missing: a pod cannot report it.
fn asked(pod: &Pod, name: &str) -> Option<Duration> {
    let asked: SignedDuration = annotation(pod, name)?.parse().ok()?;
    Duration::try_from(asked).ok()
}

fn exit_code(pod: &Pod) -> i32 {
    annotation(pod, annotations::EXIT_CODE).and_then(|code| code.parse().ok()).unwrap_or(0)
}

fn job_time(pod: &Pod, options: &NodeOptions) -> Option<Duration> {
    let of_a_job = controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job");
    of_a_job.then_some(options.job_runs_for)
}

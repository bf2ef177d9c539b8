//! Named checks behind the probes: `/healthz`, `/livez`, `/readyz`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::catch_panic_sync;
use windlass_metrics::Metrics;

/// A health check: fast and synchronous, called at any time. The error is the reason for the failure.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A condition that operators should know about although no probe fails; `None` while it does not apply.
pub type Notice = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A probe endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// `/healthz`: the older name of liveness, with the same checks.
    Health,
    /// `/livez`: whether the process must be restarted.
    Live,
    /// `/readyz`: whether the process can do its work, leading or on standby.
    Ready,
}

impl Probe {
    /// Every probe.
    pub const ALL: [Probe; 3] = [Probe::Health, Probe::Live, Probe::Ready];

    /// Returns the name in paths and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Probe::Health => "healthz",
            Probe::Live => "livez",
            Probe::Ready => "readyz",
        }
    }

    /// Returns the group of checks of this probe.
    const fn group(self) -> Group {
        match self {
            Probe::Health | Probe::Live => Group::Live,
            Probe::Ready => Group::Ready,
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Live,
    Ready,
}

/// The checks of one process. Clones share them.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use windlass_admin::{Health, Probe};
/// use windlass_metrics::Metrics;
///
/// let health = Health::new(Metrics::new());
/// health.ready("database", Arc::new(|| Err("not connected".to_owned())));
/// assert!(!health.report(Probe::Ready).passed());
/// assert!(health.report(Probe::Live).passed());
/// ```
#[derive(Clone)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<(Group, String), Check>>>,
    notices: Arc<Mutex<BTreeMap<String, Notice>>>,
    /// The checks that failed in their last run, with the [`gist`] of the reason.
    failing: Arc<Mutex<BTreeMap<(Group, String), String>>>,
    metrics: Metrics,
}

impl Health {
    /// Returns health checks whose results are also exported as metrics. `ping` always exists and proves that the
    /// server responds.
    pub fn new(metrics: Metrics) -> Self {
        let health =
            Self { checks: Arc::default(), notices: Arc::default(), failing: Arc::default(), metrics };
        health.live("ping", Arc::new(|| Ok(())));
        health.ready("ping", Arc::new(|| Ok(())));
        health
    }

    /// Adds a check to liveness, or replaces the one of that name.
    pub fn live(&self, name: &str, check: Check) {
        self.lock().insert((Group::Live, name.to_owned()), check);
    }

    /// Adds a check to readiness, or replaces the one of that name.
    pub fn ready(&self, name: &str, check: Check) {
        self.lock().insert((Group::Ready, name.to_owned()), check);
    }

    /// Adds a notice to every endpoint that lists checks, or replaces the notice of that name. It does not change a
    /// result: a condition that a restart cannot fix must not cause one.
    pub fn notice(&self, name: &str, notice: Notice) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), notice);
    }

    /// Runs every check of `probe`, in order of name.
    pub fn report(&self, probe: Probe) -> Report {
        self.report_without(probe, &BTreeSet::new())
    }

    /// Runs every check of `probe` except the named ones.
    pub fn report_without(&self, probe: Probe, excluded: &BTreeSet<String>) -> Report {
        let (left_out, asked): (Vec<_>, Vec<_>) =
            self.checks(probe).into_iter().partition(|(name, _)| excluded.contains(name));
        let results = asked.into_iter().map(|(name, check)| self.run(probe, name, &check)).collect();
        let left_out: BTreeSet<String> = left_out.into_iter().map(|(name, _)| name).collect();
        let unknown = excluded.difference(&left_out).cloned().collect();
        Report { probe, results, excluded: left_out, unknown, notices: self.noticed() }
    }

    /// Runs one check of `probe`; returns `None` if the probe has no such check.
    pub fn check(&self, probe: Probe, name: &str) -> Option<CheckResult> {
        let (name, check) = self.checks(probe).into_iter().find(|(known, _)| known == name)?;
        Some(self.run(probe, name, &check))
    }

    /// Returns the checks, which the caller runs without the lock, so that a check can add another.
    fn checks(&self, probe: Probe) -> Vec<(String, Check)> {
        let checks = self.lock();
        let of_probe = checks.iter().filter(|((group, _), _)| *group == probe.group());
        of_probe.map(|((_, name), check)| (name.clone(), Arc::clone(check))).collect()
    }

    fn noticed(&self) -> Vec<(String, String)> {
        let notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = |(name, notice): (String, Notice)| {
            let text = catch_panic_sync(|| notice());
            let text = text.unwrap_or_else(|message| Some(format!("the notice panicked: {message}")));
            text.map(|text| (name, text))
        };
        notices.into_iter().filter_map(named).collect()
    }

    fn run(&self, probe: Probe, name: String, check: &Check) -> CheckResult {
        let outcome = catch_panic_sync(|| check())
            .unwrap_or_else(|message| Err(format!("the check panicked: {message}")));
        self.metrics.manager().healthcheck(&name, probe.as_str()).observe(outcome.is_ok());
        // Any client can probe at any rate, so only changes are logged.
        if self.has_changed(probe.group(), &name, &outcome) {
            match &outcome {
                Ok(()) => {
                    tracing::info!(probe = probe.as_str(), check = %name, "health check passes again");
                }
                Err(reason) => {
                    tracing::warn!(probe = probe.as_str(), check = %name, %reason, "health check failed");
                }
            }
        }
        CheckResult { name, outcome }
    }

    /// Returns whether the result of a check differs from its last run. Initially a check counts as passing.
    fn has_changed(&self, group: Group, name: &str, outcome: &Result<(), String>) -> bool {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (group, name.to_owned());
        match outcome {
            Ok(()) => failing.remove(&key).is_some(),
            Err(reason) => {
                let gist = gist(reason);
                failing.insert(key, gist.clone()) != Some(gist)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Group, String), Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a reason without its numbers, because a duration differs in each run.
fn gist(reason: &str) -> String {
    let is_figure = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
    reason.split_whitespace().filter(|word| !is_figure(word)).collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.lock().keys().collect::<Vec<_>>()).finish()
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The check's name.
    pub name: String,
    /// The error is the reason for the failure.
    pub outcome: Result<(), String>,
}

/// The results of all checks of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The probe.
    pub probe: Probe,
    /// The results, in order of name.
    pub results: Vec<CheckResult>,
    /// The checks that the client excluded.
    pub excluded: BTreeSet<String>,
    /// The excluded names without a check.
    pub unknown: BTreeSet<String>,
    /// The notices, in order of name.
    pub notices: Vec<(String, String)>,
}

impl Report {
    /// Returns whether every check passed.
    pub fn passed(&self) -> bool {
        self.results.iter().all(|result| result.outcome.is_ok())
    }

    /// Returns one line per check, in upstream format. Reasons are withheld because probes need no authorization. They
    /// are in the log, and on the path of the check for authorized clients.
    pub fn details(&self) -> String {
        let mut lines: BTreeMap<&str, String> = BTreeMap::new();
        for CheckResult { name, outcome } in &self.results {
            let line = match outcome {
                Ok(()) => format!("[+]{name} ok\n"),
                Err(_) => format!("[-]{name} failed: reason withheld\n"),
            };
            lines.insert(name, line);
        }
        lines.extend(self.excluded.iter().map(|name| (name.as_str(), format!("[+]{name} excluded: ok\n"))));
        let notice = |(name, text): &(String, String)| format!("[!]{name} {text}\n");
        let lines: String = lines.into_values().chain(self.notices.iter().map(notice)).collect();
        let verdict = if self.passed() { "passed" } else { "failed" };
        format!("{lines}{}{} check {verdict}\n", self.warning(), self.probe.as_str())
    }

    fn warning(&self) -> String {
        if self.unknown.is_empty() {
            return String::new();
        }
        let unknown: Vec<String> = self.unknown.iter().map(|name| format!("{name:?}")).collect();
        format!("warn: cannot exclude {}: no such check\n", unknown.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // parity: healthy-if-all-checks, no-leader-election-manager
    #[test]
    fn probe_fails_with_any_of_its_checks_and_names_it() {
        let health = Health::new(Metrics::new());
        health.ready("caches", Arc::new(|| Err("pods".to_owned())));
        assert!(health.report(Probe::Live).passed());
        let ready = health.report(Probe::Ready);
        assert!(!ready.passed());
        assert_eq!(ready.details(), "[-]caches failed: reason withheld\n[+]ping ok\nreadyz check failed\n");
        assert_eq!(health.check(Probe::Ready, "ping").map(|ping| ping.outcome), Some(Ok(())));
        assert_eq!(health.check(Probe::Live, "nobody"), None);
    }

    // parity: ignores-excluded-checks-unknown
    #[test]
    fn excluded_check_is_skipped_and_unknown_exclusion_warns() {
        let health = Health::new(Metrics::new());
        health.ready("caches", Arc::new(|| panic!("excluded check ran")));
        let excluded = BTreeSet::from(["caches", "x", "y"].map(String::from));
        let report = health.report_without(Probe::Ready, &excluded);
        assert!(report.passed());
        assert_eq!(
            report.details(),
            "[+]caches excluded: ok\n[+]ping ok\n\
             warn: cannot exclude \"x\",\"y\": no such check\nreadyz check passed\n"
        );
    }

    #[test]
    fn notice_is_listed_and_does_not_fail_the_probe() {
        let health = Health::new(Metrics::new());
        health.notice("silent", Arc::new(|| None));
        health.notice("scribe", Arc::new(|| Some("1 keys in quarantine".to_owned())));
        let live = health.report(Probe::Live);
        assert!(live.passed());
        assert_eq!(live.details(), "[+]ping ok\n[!]scribe 1 keys in quarantine\nlivez check passed\n");
    }

    #[test]
    fn check_is_logged_on_failure_other_reason_and_recovery() {
        let health = Health::new(Metrics::new());
        let changed = |group, name: &str, outcome: Result<(), &str>| {
            health.has_changed(group, name, &outcome.map_err(str::to_owned))
        };
        let logged: Vec<bool> = [Ok(()), Err("a"), Err("a"), Err("b"), Err("b"), Ok(()), Ok(()), Err("b")]
            .map(|outcome| changed(Group::Live, "caches", outcome))
            .to_vec();
        assert_eq!(logged, [false, true, false, true, false, true, false, true]);
        assert!(changed(Group::Live, "caches", Err("web-1 for 900ms")));
        assert!(!changed(Group::Live, "caches", Err("web-1 for 1.5s")), "only longer");
        assert!(changed(Group::Live, "caches", Err("web-2 for 1.5s")));
        assert!(changed(Group::Ready, "caches", Err("b")), "another check");
        assert!(changed(Group::Live, "ping", Err("b")), "another check");
    }

    // parity: healthy-if-all-checks
    #[test]
    fn check_that_panics_fails_alone() {
        let health = Health::new(Metrics::new());
        health.live("wild", Arc::new(|| panic!("boom")));
        let report = health.report(Probe::Health);
        assert_eq!(report.results.iter().filter(|result| result.outcome.is_err()).count(), 1);
    }
}

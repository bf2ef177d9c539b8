//! Named checks behind the probes: `/healthz`, `/livez`, `/readyz`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::caught_now;
use windlass_metrics::Metrics;

/// One check: quick, synchronous, asked at any time. The error says what is wrong.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Something an operator should see although no probe fails for it; `None` while there is nothing to say.
pub type Notice = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Which question is asked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// `/healthz`: the older word for liveness, with the same checks.
    Health,
    /// `/livez`: should this process be restarted?
    Live,
    /// `/readyz`: can this process do its part, leading or standing by?
    Ready,
}

impl Probe {
    /// Every probe.
    pub const ALL: [Probe; 3] = [Probe::Health, Probe::Live, Probe::Ready];

    /// The name in paths and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Probe::Health => "healthz",
            Probe::Live => "livez",
            Probe::Ready => "readyz",
        }
    }

    /// Whose checks answer this probe.
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
#[derive(Clone)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<(Group, String), Check>>>,
    notices: Arc<Mutex<BTreeMap<String, Notice>>>,
    metrics: Metrics,
}

impl Health {
    /// Checks whose results are also told as metrics. `ping` is there from the start: it proves that somebody answers.
    pub fn new(metrics: Metrics) -> Self {
        let health = Self { checks: Arc::default(), notices: Arc::default(), metrics };
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

    /// Adds a notice to every page that lists its checks, or replaces the one of that name. It changes no answer: what
    /// a restart cannot mend must not cause one.
    pub fn notice(&self, name: &str, notice: Notice) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), notice);
    }

    /// Asks every check of `probe`, in order of name.
    pub fn report(&self, probe: Probe) -> Report {
        // The checks run outside the lock, so that one of them may add another.
        let checks: Vec<(String, Check)> = {
            let checks = self.lock();
            let of_probe = checks.iter().filter(|((group, _), _)| *group == probe.group());
            of_probe.map(|((_, name), check)| (name.clone(), Arc::clone(check))).collect()
        };
        let results = checks.into_iter().map(|(name, check)| self.ask(probe, name, &check)).collect();
        Report { probe, results, notices: self.noticed() }
    }

    fn noticed(&self) -> Vec<(String, String)> {
        let notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let told = |(name, notice): (String, Notice)| {
            let said = caught_now(|| notice());
            let said = said.unwrap_or_else(|message| Some(format!("the notice panicked: {message}")));
            said.map(|text| (name, text))
        };
        notices.into_iter().filter_map(told).collect()
    }

    fn ask(&self, probe: Probe, name: String, check: &Check) -> CheckResult {
        let outcome =
            caught_now(|| check()).unwrap_or_else(|message| Err(format!("the check panicked: {message}")));
        self.metrics.manager().healthcheck(&name, probe.as_str()).observe(outcome.is_ok());
        if let Err(reason) = &outcome {
            tracing::warn!(probe = probe.as_str(), check = %name, %reason, "a health check fails");
        }
        CheckResult { name, outcome }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Group, String), Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.lock().keys().collect::<Vec<_>>()).finish()
    }
}

/// What one check said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The check's name.
    pub name: String,
    /// The error says what is wrong.
    pub outcome: Result<(), String>,
}

/// What all checks of a probe said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was asked.
    pub probe: Probe,
    /// The answers, in order of name.
    pub results: Vec<CheckResult>,
    /// What should be seen although nothing fails for it, in order of name.
    pub notices: Vec<(String, String)>,
}

impl Report {
    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.results.iter().all(|result| result.outcome.is_ok())
    }

    /// The report of one check alone; none if there is no such check.
    pub fn only(mut self, name: &str) -> Option<Self> {
        self.results.retain(|result| result.name == name);
        (!self.results.is_empty()).then_some(self)
    }

    /// The report without one check, as `?exclude=` asks.
    pub fn without(mut self, name: &str) -> Self {
        self.results.retain(|result| result.name != name);
        self
    }

    /// One line per check. Reasons are withheld, since the address may be open to others than the operator; they are
    /// in the log.
    pub fn details(&self) -> String {
        let line = |result: &CheckResult| match result.outcome {
            Ok(()) => format!("[+]{} ok\n", result.name),
            Err(_) => format!("[-]{} failed: reason withheld\n", result.name),
        };
        let notice = |(name, text): &(String, String)| format!("[!]{name} {text}\n");
        let lines: String = self.results.iter().map(line).chain(self.notices.iter().map(notice)).collect();
        let verdict = if self.passed() { "passed" } else { "failed" };
        format!("{lines}{} check {verdict}\n", self.probe.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_fails_with_any_of_its_checks_and_names_it() {
        let health = Health::new(Metrics::new());
        health.ready("caches", Arc::new(|| Err("pods".to_owned())));
        assert!(health.report(Probe::Live).passed());
        let ready = health.report(Probe::Ready);
        assert!(!ready.passed());
        assert_eq!(ready.details(), "[-]caches failed: reason withheld\n[+]ping ok\nreadyz check failed\n");
        assert!(ready.clone().only("ping").is_some_and(|report| report.passed()));
        assert!(ready.without("caches").passed());
        assert_eq!(health.report(Probe::Live).only("nobody"), None);
    }

    #[test]
    fn a_notice_is_shown_and_changes_no_answer() {
        let health = Health::new(Metrics::new());
        health.notice("silent", Arc::new(|| None));
        health.notice("scribe", Arc::new(|| Some("1 keys in quarantine".to_owned())));
        let live = health.report(Probe::Live);
        assert!(live.passed());
        assert_eq!(live.details(), "[+]ping ok\n[!]scribe 1 keys in quarantine\nlivez check passed\n");
    }

    #[test]
    fn a_check_that_panics_fails_alone() {
        let health = Health::new(Metrics::new());
        health.live("wild", Arc::new(|| panic!("boom")));
        let report = health.report(Probe::Health);
        assert_eq!(report.results.iter().filter(|result| result.outcome.is_err()).count(), 1);
    }
}

//! Named checks behind the probes: `/healthz`, `/livez`, `/readyz`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::catch_panic_sync;
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
    /// The checks that failed when they were last asked, and the [`gist`] of why.
    failing: Arc<Mutex<BTreeMap<(Group, String), String>>>,
    metrics: Metrics,
}

impl Health {
    /// Checks whose results are also told as metrics. `ping` is there from the start: it proves that somebody answers.
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

    /// Adds a notice to every page that lists its checks, or replaces the one of that name. It changes no answer: what
    /// a restart cannot mend must not cause one.
    pub fn notice(&self, name: &str, notice: Notice) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), notice);
    }

    /// Asks every check of `probe`, in order of name.
    pub fn report(&self, probe: Probe) -> Report {
        self.report_without(probe, &BTreeSet::new())
    }

    /// Asks every check of `probe` but those named, which are not run at all.
    pub fn report_without(&self, probe: Probe, excluded: &BTreeSet<String>) -> Report {
        let (left_out, asked): (Vec<_>, Vec<_>) =
            self.checks(probe).into_iter().partition(|(name, _)| excluded.contains(name));
        let results = asked.into_iter().map(|(name, check)| self.ask(probe, name, &check)).collect();
        let left_out: BTreeSet<String> = left_out.into_iter().map(|(name, _)| name).collect();
        let unknown = excluded.difference(&left_out).cloned().collect();
        Report { probe, results, excluded: left_out, unknown, notices: self.noticed() }
    }

    /// Asks one check of `probe`; none if it has no such check.
    pub fn check(&self, probe: Probe, name: &str) -> Option<CheckResult> {
        let (name, check) = self.checks(probe).into_iter().find(|(known, _)| known == name)?;
        Some(self.ask(probe, name, &check))
    }

    /// Run by the caller outside the lock, so that one of them may add another.
    fn checks(&self, probe: Probe) -> Vec<(String, Check)> {
        let checks = self.lock();
        let of_probe = checks.iter().filter(|((group, _), _)| *group == probe.group());
        of_probe.map(|((_, name), check)| (name.clone(), Arc::clone(check))).collect()
    }

    fn noticed(&self) -> Vec<(String, String)> {
        let notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let told = |(name, notice): (String, Notice)| {
            let said = catch_panic_sync(|| notice());
            let said = said.unwrap_or_else(|message| Some(format!("the notice panicked: {message}")));
            said.map(|text| (name, text))
        };
        notices.into_iter().filter_map(told).collect()
    }

    fn ask(&self, probe: Probe, name: String, check: &Check) -> CheckResult {
        let outcome = catch_panic_sync(|| check())
            .unwrap_or_else(|message| Err(format!("the check panicked: {message}")));
        self.metrics.manager().healthcheck(&name, probe.as_str()).observe(outcome.is_ok());
        // Anybody may ask, as often as they like: only what is news is logged.
        if self.is_news(probe.group(), &name, &outcome) {
            match &outcome {
                Ok(()) => {
                    tracing::info!(probe = probe.as_str(), check = %name, "a health check passes again");
                }
                Err(reason) => {
                    tracing::warn!(probe = probe.as_str(), check = %name, %reason, "a health check fails");
                }
            }
        }
        CheckResult { name, outcome }
    }

    /// Whether a check says something else than when it was last asked. At first it is taken to pass.
    fn is_news(&self, group: Group, name: &str, outcome: &Result<(), String>) -> bool {
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

/// A reason without its figures: for how long something has been wrong is another figure each time.
fn gist(reason: &str) -> String {
    let is_figure = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
    reason.split_whitespace().filter(|word| !is_figure(word)).collect::<Vec<_>>().join(" ")
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
    /// The checks that were left out, as asked.
    pub excluded: BTreeSet<String>,
    /// What was to be left out and is no check.
    pub unknown: BTreeSet<String>,
    /// What should be seen although nothing fails for it, in order of name.
    pub notices: Vec<(String, String)>,
}

impl Report {
    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.results.iter().all(|result| result.outcome.is_ok())
    }

    /// One line per check, as upstream's servers write it. Reasons are withheld, since whoever probes needs no leave;
    /// they are in the log, and on the path of the check itself for whoever may read that.
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
        format!("warn: nothing was excluded for {}: there is no such check\n", unknown.join(","))
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
    fn check_that_is_excluded_is_not_run_and_one_that_is_not_there_is_warned_of() {
        let health = Health::new(Metrics::new());
        health.ready("caches", Arc::new(|| panic!("asked")));
        let excluded = BTreeSet::from(["caches", "who", "what"].map(String::from));
        let report = health.report_without(Probe::Ready, &excluded);
        assert!(report.passed());
        assert_eq!(
            report.details(),
            "[+]caches excluded: ok\n[+]ping ok\n\
             warn: nothing was excluded for \"what\",\"who\": there is no such check\nreadyz check passed\n"
        );
    }

    #[test]
    fn notice_is_shown_and_changes_no_answer() {
        let health = Health::new(Metrics::new());
        health.notice("silent", Arc::new(|| None));
        health.notice("scribe", Arc::new(|| Some("1 keys in quarantine".to_owned())));
        let live = health.report(Probe::Live);
        assert!(live.passed());
        assert_eq!(live.details(), "[+]ping ok\n[!]scribe 1 keys in quarantine\nlivez check passed\n");
    }

    #[test]
    fn check_is_news_when_it_begins_to_fail_fails_for_another_reason_or_passes_again() {
        let health = Health::new(Metrics::new());
        let says = |group, name: &str, outcome: Result<(), &str>| {
            health.is_news(group, name, &outcome.map_err(str::to_owned))
        };
        let told: Vec<bool> = [Ok(()), Err("a"), Err("a"), Err("b"), Err("b"), Ok(()), Ok(()), Err("b")]
            .map(|outcome| says(Group::Live, "caches", outcome))
            .to_vec();
        assert_eq!(told, [false, true, false, true, false, true, false, true]);
        assert!(says(Group::Live, "caches", Err("web-1 for 900ms")));
        assert!(!says(Group::Live, "caches", Err("web-1 for 1.5s")), "only longer");
        assert!(says(Group::Live, "caches", Err("web-2 for 1.5s")));
        assert!(says(Group::Ready, "caches", Err("b")), "another check");
        assert!(says(Group::Live, "ping", Err("b")), "another check");
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

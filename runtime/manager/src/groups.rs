//! Several elections in one process: which controllers stand together, and who goes first where several replicas could.
//!
//! Each group has a Lease of its own, so that replicas can share work: one may lead some groups and stand by for others.
//! A lease that nobody holds is taken after a hesitation that grows with what a replica leads already, so that one that
//! leads less goes first. That is all there is to the sharing: **no group is moved while its leader is well**. A hand-over
//! costs a drain, and whoever needs work to follow replicas as they come and go wants shards.
//!
//! A replica that runs none of a group's controllers does not stand for it, unless it has a runnable that goes with it.
//!
//! The hesitation is short against a lease and bounded by one retry period: a replica that is alone takes everything.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass_election::{ElectionConfig, Hesitation};

use crate::config::ConfigError;
use crate::error::ManagerError;
use crate::registry::Registry;

/// How many parts of a retry period a replica hesitates for: one where it could take several leases at once and others
/// may prefer this one, and three for each that it leads, so that one whose machine is busy still comes first.
const PARTS: u32 = 8;

/// Controllers that are elected together, apart from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionGroup {
    /// What ends the name of their Lease: `<lease name>-<name>`. Lower-case letters, digits and dashes.
    pub name: String,
    /// The controllers, by name or alias. A controller is in one group at most; those in none are elected under the
    /// main Lease, as is what else needs leadership.
    pub controllers: Vec<String>,
}

impl ElectionGroup {
    /// A group of this name.
    pub fn new<S: Into<String>>(name: impl Into<String>, controllers: impl IntoIterator<Item = S>) -> Self {
        Self { name: name.into(), controllers: controllers.into_iter().map(Into::into).collect() }
    }

    /// The election of this group, in a process whose main one is `main`.
    pub(crate) fn election(&self, main: &ElectionConfig) -> ElectionConfig {
        let lease_name = format!("{}-{}", main.lease_name, self.name);
        // A coordinator knows candidates by their identity, each for one Lease.
        let identity = match main.coordinated {
            Some(_) => format!("{}-{}", main.identity, self.name),
            None => main.identity.clone(),
        };
        ElectionConfig { lease_name, identity, ..main.clone() }
    }
}

/// Checks what can be checked without knowing the controllers.
pub(crate) fn validate(groups: &[ElectionGroup], elected: bool) -> Result<(), ConfigError> {
    let Some(first) = groups.first() else { return Ok(()) };
    if !elected {
        return Err(ConfigError::GroupsUnelected { group: first.name.clone() });
    }
    for (number, group) in groups.iter().enumerate() {
        let name = || group.name.clone();
        if !is_label(&group.name) {
            return Err(ConfigError::GroupName { name: name() });
        }
        if group.controllers.is_empty() {
            return Err(ConfigError::GroupEmpty { name: name() });
        }
        if groups[..number].iter().any(|before| before.name == group.name) {
            return Err(ConfigError::GroupTwice { name: name() });
        }
    }
    Ok(())
}

/// What a Lease's name may end with.
fn is_label(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(allowed) && !name.ends_with('-')
}

/// Which controllers stand together, by their canonical names.
#[derive(Debug)]
pub(crate) struct Membership(Vec<Vec<&'static str>>);

impl Membership {
    /// Looks the members of each group up.
    pub(crate) fn of(groups: &[ElectionGroup], registry: &Registry) -> Result<Self, ManagerError> {
        let mut found: Vec<Vec<&'static str>> = Vec::new();
        for group in groups {
            let mut members = Vec::new();
            for name in &group.controllers {
                let canonical = registry.canonical(name)?;
                let before = found.iter().position(|members| members.contains(&canonical));
                if let Some(first) = before.map(|number| groups[number].name.clone()) {
                    let second = group.name.clone();
                    return Err(ConfigError::GroupsShare { controller: canonical, first, second }.into());
                }
                members.push(canonical);
            }
            found.push(members);
        }
        Ok(Self(found))
    }

    /// The number of the group that `controller` is in.
    pub(crate) fn group_of(&self, controller: &str) -> Option<usize> {
        self.0.iter().position(|members| members.contains(&controller))
    }
}

/// How much this replica leads. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Burden(Arc<AtomicU32>);

/// One thing that is led, for as long as it is.
pub(crate) struct Load(Burden);

impl Burden {
    /// From now on this replica leads one more.
    pub(crate) fn more(&self) -> Load {
        self.0.fetch_add(1, Ordering::Relaxed);
        Load(self.clone())
    }

    /// How long this replica hesitates before it takes a lease that is free. `preferred` is the one that it takes at
    /// once while it leads nothing: another replica prefers another, mostly.
    pub(crate) fn hesitation(&self, retry_period: Duration, preferred: bool) -> Hesitation {
        let burden = self.clone();
        Arc::new(move || pause(retry_period, burden.0.load(Ordering::Relaxed), preferred))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Load")
    }
}

fn pause(retry_period: Duration, led: u32, preferred: bool) -> Duration {
    let parts = if led == 0 { u32::from(!preferred) } else { led.saturating_mul(3) };
    (retry_period / PARTS * parts.min(PARTS)).min(retry_period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_a_replica_leads_the_longer_it_lets_others_go_first_and_never_longer_than_a_retry_period() {
        let period = Duration::from_secs(2);
        let of = |led, preferred| pause(period, led, preferred).as_millis();
        assert_eq!((of(0, true), of(0, false), of(1, true), of(1, false)), (0, 250, 750, 750));
        assert_eq!(
            (of(2, false), of(4, false), of(1000, false), of(u32::MAX, true)),
            (1500, 2000, 2000, 2000)
        );
    }

    #[test]
    fn groups_that_could_never_work_are_refused_by_name() {
        let group = |name: &str| ElectionGroup::new(name, ["a"]);
        let said =
            |groups: &[ElectionGroup], elected| validate(groups, elected).map_err(|error| error.to_string());
        assert_eq!(said(&[], false), Ok(()));
        assert_eq!(said(&[group("web"), group("batch-1")], true), Ok(()));
        let cases: [(&[ElectionGroup], bool, &str); 5] = [
            (&[group("web")], false, "web"),
            (&[group("Web")], true, "Web"),
            (&[group("")], true, "\"\""),
            (&[group("web"), group("web")], true, "web"),
            (&[ElectionGroup::new("web", Vec::<String>::new())], true, "web"),
        ];
        for (groups, elected, name) in cases {
            let message = said(groups, elected).expect_err(name);
            assert!(message.contains(name), "{message}");
        }
    }
}

//! Holders of shards over time, from the audit log, and a check that only the holder of a shard writes.
//!
//! Every replica has its own user, so that the audit log names the replica of each write, status update and patch. A
//! write is valid if the Lease of a shard with its namespace named the replica of that user when the server received
//! the write, and was renewed within the lease duration. Writes in flight thus have the time between renew deadline and
//! lease duration, in which no other replica can acquire the Lease.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use windlass_object::shard::{HashRanges, hash};

use crate::audit::Write;

/// The durations of an election.
#[derive(Clone, Copy, Debug)]
pub struct LeaseDurations {
    /// Time since the last renewal after which another replica can acquire a Lease.
    pub lease_duration: Duration,
    /// Time since the last renewal after which the holder stops writing.
    pub renew_deadline: Duration,
}

/// The history of the Leases of shards.
#[derive(Debug)]
pub struct LeaseHistory {
    durations: LeaseDurations,
    /// Snapshots by Lease name, in commit order.
    leases: BTreeMap<String, Vec<LeaseSnapshot>>,
}

/// The state of a Lease after a write.
#[derive(Clone, Debug)]
struct LeaseSnapshot {
    version: u64,
    user: String,
    /// Whether it names a holder. The holder is then the writer.
    held: bool,
    ranges: HashRanges,
    received: Timestamp,
    answered: Timestamp,
}

/// A transfer of a shard from one user to another.
#[derive(Clone, Debug)]
pub struct ShardTransfer {
    /// Name of the Lease.
    pub lease: String,
    /// Time of the release, or of the last renewal if the Lease was not released.
    pub since: Timestamp,
    /// Time from `since` until another replica held the Lease.
    pub after: Duration,
    /// Whether the Lease was released.
    pub released: bool,
}

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct LeaseHistoryReport {
    /// Number of writes by user.
    pub writes: BTreeMap<String, usize>,
    /// Maximum time between a write and the renewal before it.
    pub longest: Duration,
}

impl LeaseHistory {
    /// Reads the history of the shard Leases of `election` from audited writes.
    ///
    /// # Errors
    /// A Lease cannot be parsed.
    pub fn of(writes: &[Write], election: &str, durations: LeaseDurations) -> Result<Self> {
        let mut leases = BTreeMap::<String, Vec<LeaseSnapshot>>::new();
        let prefix = format!("{election}-shard-");
        for write in writes.iter().filter(|write| write.resource() == "leases" && write.succeeded()) {
            let lease = &write.response_object;
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            if write.verb != "delete" && name.starts_with(&prefix) {
                leases.entry(name.to_owned()).or_default().push(LeaseSnapshot::of(write)?);
            }
        }
        leases.values_mut().for_each(|snapshots| snapshots.sort_by_key(|one| one.version));
        Ok(Self { durations, leases })
    }

    /// Checks every write.
    ///
    /// # Errors
    /// A write was sent without the Lease of its namespace's shard, or too late.
    pub fn check(&self, writes: &[Write]) -> Result<LeaseHistoryReport> {
        let mut report = LeaseHistoryReport::default();
        for write in writes.iter().filter(|write| !matches!(write.resource(), "leases" | "events" | "")) {
            let (user, at) = (&write.user.username, write.request_received_timestamp.0);
            let target = write.object_ref.clone().unwrap_or_default();
            // Cluster-scoped objects are sharded by name.
            let place = if target.namespace.is_empty() { target.name } else { target.namespace };
            let renewed = self.renewed(user, hash(&place), at);
            let Some(ago) = renewed.map(|renewed| since(renewed, at)) else {
                bail!("{user} held no shard with {place} at {at}: {write:?}")
            };
            let late = ago.saturating_sub(self.durations.renew_deadline);
            ensure!(
                ago <= self.durations.lease_duration,
                "{user} wrote {late:?} after its deadline, {ago:?} after it had renewed: {write:?}"
            );
            report.longest = report.longest.max(ago);
            *report.writes.entry(user.clone()).or_default() += 1;
        }
        Ok(report)
    }

    /// Returns the time at which the user last renewed a Lease that it held at `at` and whose ranges contain the hash.
    fn renewed(&self, user: &str, hash: u64, at: Timestamp) -> Option<Timestamp> {
        let in_effect = self.leases.values().flat_map(|snapshots| {
            // The last completed write was in effect. Any write in flight might be in effect too.
            let certain = snapshots.iter().rposition(|one| one.answered <= at).unwrap_or(0);
            snapshots.iter().skip(certain).filter(|one| one.received <= at)
        });
        let own = in_effect.filter(|one| one.held && one.user == user && one.ranges.contains(hash));
        own.map(|one| one.received).max()
    }

    /// Returns the transfers of shards, ordered by Lease and time.
    pub fn changes(&self) -> Vec<ShardTransfer> {
        self.leases.iter().flat_map(|(lease, snapshots)| changes_of(lease, snapshots)).collect()
    }
}

fn changes_of(lease: &str, snapshots: &[LeaseSnapshot]) -> Vec<ShardTransfer> {
    let mut changes = Vec::new();
    // The last holder, and the time of its release.
    let (mut last, mut freed): (Option<&LeaseSnapshot>, Option<Timestamp>) = (None, None);
    for one in snapshots {
        match last {
            Some(before) if one.held && one.user != before.user => {
                let since = freed.unwrap_or(before.received);
                let after = self::since(since, one.answered);
                changes.push(ShardTransfer {
                    lease: lease.to_owned(),
                    since,
                    after,
                    released: freed.is_some(),
                });
            }
            // A replica can overwrite an expired Lease without acquiring it.
            Some(before) if !one.held && one.user == before.user => freed = Some(one.answered),
            _ => {}
        }
        if one.held {
            (last, freed) = (Some(one), None);
        }
    }
    changes
}

impl LeaseSnapshot {
    fn of(write: &Write) -> Result<Self> {
        let lease = &write.response_object;
        let version = lease["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        let ranges = lease["metadata"]["annotations"]["windlass.dev/ranges"].as_str().unwrap_or_default();
        Ok(Self {
            version: version.with_context(|| format!("Lease has no resourceVersion: {write:?}"))?,
            user: write.user.username.clone(),
            held: lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()),
            ranges: ranges.parse().with_context(|| format!("parsing ranges {ranges:?}"))?,
            received: write.request_received_timestamp.0,
            answered: write.stage_timestamp.0,
        })
    }
}

fn since(begun: Timestamp, at: Timestamp) -> Duration {
    let passed: SignedDuration = at.duration_since(begun);
    Duration::try_from(passed).unwrap_or_default()
}

impl fmt::Display for LeaseHistoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, longest } = self;
        let all: usize = writes.values().sum();
        write!(
            f,
            "{all} writes under the Leases of their shards, at most {longest:?} after a renewal: {writes:?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TERMS: LeaseDurations =
        LeaseDurations { lease_duration: Duration::from_secs(5), renew_deadline: Duration::from_secs(4) };

    fn write(user: &str, at: &str, verb: &str, target: Value, lease: &Value) -> Write {
        let written = json!({
            "verb": verb, "user": { "username": user }, "objectRef": target, "responseStatus": { "code": 200 },
            "requestReceivedTimestamp": format!("2026-01-01T00:00:{at}00000Z"),
            "stageTimestamp": format!("2026-01-01T00:00:{at}90000Z"), "responseObject": lease,
        });
        serde_json::from_value(written).unwrap()
    }

    /// Returns a write of `user` to a Lease that covers the whole ring.
    fn lease(user: &str, at: &str, version: u32, holder: &str) -> Write {
        let target = json!({ "resource": "leases", "namespace": "kube-system" });
        let metadata = json!({
            "name": "windlass-shard-0", "resourceVersion": version.to_string(),
            "annotations": { "windlass.dev/ranges": "0x0000000000000000-0x10000000000000000" },
        });
        write(
            user,
            at,
            "update",
            target,
            &json!({ "metadata": metadata, "spec": { "holderIdentity": holder } }),
        )
    }

    fn patch(user: &str, at: &str) -> Write {
        let target = json!({ "resource": "replicasets", "subresource": "status", "namespace": "shop" });
        write(user, at, "patch", target, &Value::Null)
    }

    /// Returns a history: one replica stops renewing, another acquires the Lease and releases it again.
    fn history() -> Vec<Write> {
        vec![
            lease("one", "01.0", 7, "one_x"),
            lease("one", "02.0", 9, "one_x"),
            lease("two", "08.0", 11, "two_y"),
            lease("two", "09.0", 13, ""),
            lease("one", "09.5", 14, "one_x"),
        ]
    }

    #[test]
    fn write_is_allowed_only_to_holder_of_fresh_lease() {
        let history = LeaseHistory::of(&history(), "windlass", TERMS).unwrap();
        let check = |user: &str, at: &str| history.check(&[patch(user, at)]);
        for (user, at) in [("one", "01.5"), ("one", "05.9"), ("two", "08.5"), ("one", "09.6")] {
            assert!(check(user, at).is_ok(), "{user} at {at}");
        }
        for (user, at, reported) in [
            ("one", "00.5", "held no shard"),
            ("two", "02.5", "held no shard"),
            ("one", "07.5", "after its deadline"),
            ("one", "08.5", "held no shard"),
            ("two", "09.2", "held no shard"),
        ] {
            let error = check(user, at).unwrap_err().to_string();
            assert!(error.contains(reported), "{user} at {at}: {error}");
        }
    }

    #[test]
    fn transfers_distinguish_released_and_expired_leases() {
        let changes = LeaseHistory::of(&history(), "windlass", TERMS).unwrap().changes();
        let reported: Vec<_> =
            changes.iter().map(|change| (change.released, change.after.as_millis())).collect();
        assert_eq!(reported, [(false, 6_090), (true, 500)]);
    }
}

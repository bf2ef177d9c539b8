//! The modes of running the process.

use std::num::NonZeroU16;

use windlass_client::Identities;
use windlass_election::CoordinatedConfig;
use windlass_manager::ManagerConfig;

/// A mode of running the process.
pub(super) struct RunMode {
    /// Name of its user, its roles and its Lease.
    pub(super) name: &'static str,
    pub(super) flags: &'static [&'static str],
    /// The same mode as configuration.
    pub(super) configure: fn(&mut ManagerConfig),
    /// Suffixes of the names of its Leases.
    pub(super) leases: &'static [&'static str],
    /// Whether the process requests only these Leases, so that the role can list their names.
    pub(super) named: bool,
}

pub(super) const WAYS: [RunMode; 6] = [
    RunMode { name: "alone", flags: &["--leader-elect=false"], configure: alone, leases: &[], named: true },
    RunMode { name: "elected", flags: &[], configure: |_| {}, leases: &[""], named: true },
    RunMode {
        name: "shards",
        flags: &["--shards=2"],
        configure: |config| config.shards = NonZeroU16::new(2),
        leases: &["-shard-0", "-shard-1"],
        named: false,
    },
    RunMode {
        name: "coordinated",
        flags: &["--leader-elect-coordinated"],
        configure: coordinated,
        leases: &[""],
        named: true,
    },
    RunMode {
        name: "accounts",
        flags: &["--use-service-account-credentials"],
        configure: with_accounts,
        leases: &[""],
        named: true,
    },
    RunMode {
        name: "accounts-in-shards",
        flags: &["--use-service-account-credentials", "--shards=2"],
        configure: |config| {
            with_accounts(config);
            config.shards = NonZeroU16::new(2);
        },
        leases: &["-shard-0", "-shard-1"],
        named: false,
    },
];

fn alone(config: &mut ManagerConfig) {
    config.election = None;
}

fn coordinated(config: &mut ManagerConfig) {
    if let Some(election) = &mut config.election {
        election.coordinated = Some(CoordinatedConfig::new("1.0.0"));
    }
}

fn with_accounts(config: &mut ManagerConfig) {
    config.client.identities = Identities::service_accounts();
}

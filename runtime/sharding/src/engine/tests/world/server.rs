//! The server of Leases.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_election::lease::LeaseError;
use windlass_object::ResourceVersion;

use crate::engine::{LeaseUpdate, Request, Response};

/// All Leases, and all writes in order.
#[derive(Default)]
pub(super) struct Server {
    version: u64,
    pub(super) leases: BTreeMap<String, Lease>,
    pub(super) log: Vec<(u64, LeaseUpdate)>,
    /// Number of writes of the log that the watches have shown.
    shown: usize,
}

impl Server {
    pub(super) fn serve(&mut self, request: Request) -> Result<Response, LeaseError> {
        Ok(match request {
            Request::List => {
                let version = ResourceVersion::new(&self.version.to_string());
                Response::Listed(Some(version), self.leases.values().cloned().collect())
            }
            Request::Get(name) => Response::Got(self.leases.get(&name).cloned()),
            Request::Write(write) => Response::Written(self.write(write.lease, write.exists)?),
            Request::Delete(lease) => {
                self.delete(&lease)?;
                Response::Deleted
            }
            Request::Watch(_) => Response::Watching,
        })
    }

    pub(super) fn write(&mut self, mut lease: Lease, exists: bool) -> Result<Lease, LeaseError> {
        let name = lease.metadata.name.clone().expect("named");
        match (self.leases.get(&name), exists) {
            (None, true) => return Err(LeaseError::NotFound(name)),
            (Some(_), false) => return Err(LeaseError::Conflict),
            (Some(current), true) if current.metadata.resource_version != lease.metadata.resource_version => {
                return Err(LeaseError::Conflict);
            }
            (Some(current), true) if *current == lease => {
                return Err(LeaseError::Unchanged(name));
            }
            (Some(_), true) | (None, false) => {}
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.leases.insert(name, lease.clone());
        self.log.push((self.version, LeaseUpdate::Changed(lease.clone())));
        Ok(lease)
    }

    pub(super) fn delete(&mut self, lease: &Lease) -> Result<(), LeaseError> {
        let name = lease.metadata.name.clone().expect("named");
        let Some(current) = self.leases.get(&name) else { return Ok(()) };
        if current.metadata.resource_version != lease.metadata.resource_version {
            return Err(LeaseError::Conflict);
        }
        let mut gone = self.leases.remove(&name).expect("it was there");
        self.version += 1;
        gone.metadata.resource_version = Some(self.version.to_string());
        self.log.push((self.version, LeaseUpdate::Deleted(gone)));
        Ok(())
    }

    /// Returns the next write that no watch has shown.
    pub(super) fn unshown(&mut self) -> Option<LeaseUpdate> {
        let (_, lease_update) = self.log.get(self.shown)?;
        self.shown += 1;
        Some(lease_update.clone())
    }
}

//! TCP ports for programs that need a port number.
//!
//! Ports are below the kernel's ephemeral range, so no outgoing connection uses them. A file lock reserves a port as
//! long as the [`Port`] exists, so no other control plane of this user uses it, even while no program listens on it.
//! Programs outside the harness can still occupy it; the code that starts a server detects that and tries another port.

use std::fs::{File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, bail};

/// First port: above the well-known ports, below Linux's ephemeral range.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A TCP port on loopback, reserved until this value is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    // The kernel releases the lock with the last handle, even after a crash. The file stays: otherwise two processes
    // could lock two files of the same name.
    _lock: File,
}

impl Port {
    /// Reserves a port on which no program listens.
    ///
    /// # Errors
    /// Returns an error if no port is free, or the lock files cannot be written.
    pub fn reserve() -> anyhow::Result<Self> {
        // Processes start at different positions to avoid contention; correctness does not depend on it.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = lock_folder()?;
        let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
        for _ in 0..COUNT {
            let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let offset =
                u16::try_from((start + step) % u32::from(COUNT)).context("the port range is 16 bits")?;
            let number = FIRST + offset;
            if let Some(lock) = try_lock(&folder, number)?
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("no free port between {FIRST} and {}", FIRST + COUNT - 1)
    }

    /// Returns the port number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn lock_folder() -> anyhow::Result<PathBuf> {
    // Per user, because a user cannot open the lock files of another user.
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("windlass-ports-{user}"));
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

fn try_lock(folder: &std::path::Path, number: u16) -> io::Result<Option<File>> {
    let file = File::options().create(true).append(true).open(folder.join(number.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_port_is_not_reserved_again_while_nothing_listens() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn port_in_use_is_skipped() {
        let taken = Port::reserve().unwrap().number();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap();
        for _ in 0..COUNT / 100 {
            assert_ne!(Port::reserve().unwrap().number(), taken);
        }
    }
}

//! TCP ports for programs that must be told theirs.
//!
//! A port is taken from below the range that the kernel gives to outgoing connections, so no
//! connection can snatch it, and held by a file lock for as long as the [`Port`] lives, so no other
//! plane of this user gets it even while nothing listens there. Programs outside the harness may
//! still come first; whoever starts a server looks for that and tries another port.

use std::fs::{File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, bail};

/// The ports to choose from: above the well-known ones, below Linux's ephemeral range.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A TCP port on loopback, reserved until this value is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    // The kernel releases the lock with the last handle, however the process ends. The file stays:
    // removing a lock file would let two processes lock two files of one name.
    _lock: File,
}

impl Port {
    /// Reserves a port on which nothing listens.
    pub(crate) fn reserve() -> anyhow::Result<Self> {
        // Processes start at different places, so that they seldom meet; correctness does not hang on it.
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

    /// The port's number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

fn lock_folder() -> anyhow::Result<PathBuf> {
    // Per user, for one user's lock files cannot be opened by another.
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
    fn port_somebody_listens_on_is_passed_over() {
        let taken = Port::reserve().unwrap().number();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap();
        for _ in 0..COUNT / 100 {
            assert_ne!(Port::reserve().unwrap().number(), taken);
        }
    }
}

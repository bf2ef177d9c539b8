//! A TCP link between a process and an API server that a test can cut.
//!
//! While the link is cut, bytes are lost in both directions without an error, and new connections are accepted but
//! carry no data. When the link is healed, existing connections are closed and new ones work. Lost bytes are never
//! delivered, so that no request arrives late.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Interval at which an idle connection checks the state of the link.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A link to one server. Dropping it closes every connection.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    state: LinkState,
    task: JoinHandle<()>,
}

/// Number of cuts and heals of the link. It is intact at even numbers. Clones share the state.
#[derive(Clone, Debug, Default)]
struct LinkState(Arc<AtomicU64>);

impl Forwarder {
    /// Starts an intact link to the server at `to`.
    ///
    /// # Errors
    /// The system rejects the listener.
    pub async fn start(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, state) = (listener.local_addr()?, LinkState::default());
        let task = tokio::spawn(listen(listener, to, state.clone()));
        Ok(Self { address, state, task })
    }

    /// Starts a link to the server of a kubeconfig, and writes a kubeconfig next to it whose server is the near end.
    ///
    /// # Errors
    /// The kubeconfig cannot be read, parsed or written.
    pub async fn between(kubeconfig: &Path) -> Result<(Self, PathBuf)> {
        let mut config: Value = serde_json::from_str(&tokio::fs::read_to_string(kubeconfig).await?)?;
        let server = config["clusters"][0]["cluster"]["server"].take();
        let to = server.as_str().and_then(|server| server.strip_prefix("https://"));
        let to = to.and_then(|to| to.parse().ok());
        let forwarder = Self::start(to.with_context(|| format!("the server {server}"))?).await?;
        config["clusters"][0]["cluster"]["server"] = format!("https://{}", forwarder.address).into();
        let path = kubeconfig.with_extension("forwarded");
        tokio::fs::write(&path, config.to_string()).await?;
        Ok((forwarder, path))
    }

    /// Cuts the link: no bytes pass.
    pub fn cut(&self) {
        self.state.set(false);
    }

    /// Heals the link: new connections work.
    pub fn heal(&self) {
        self.state.set(true);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
        self.heal();
    }
}

impl LinkState {
    fn set(&self, whole: bool) {
        // No change if the link already has this state.
        let turn = |now: u64| (now.is_multiple_of(2) != whole).then_some(now + 1);
        let _turned = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, turn);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn listen(listener: TcpListener, to: SocketAddr, state: LinkState) {
    while let Ok((near, _)) = listener.accept().await {
        tokio::spawn(connect(near, to, state.clone()));
    }
}

/// Forwards one connection until an end closes it or the link is healed.
async fn connect(near: TcpStream, to: SocketAddr, state: LinkState) {
    let born = state.now();
    // A connection over a cut link does not reach the server.
    let far = if born.is_multiple_of(2) { TcpStream::connect(to).await.ok() } else { None };
    let (mut near_out, mut near_in) = near.into_split();
    let Some(far) = far else {
        return carry(&mut near_out, &mut tokio::io::sink(), &state, born).await;
    };
    let (mut far_out, mut far_in) = far.into_split();
    tokio::select! {
        biased;
        () = carry(&mut near_out, &mut far_in, &state, born) => {}
        () = carry(&mut far_out, &mut near_in, &state, born) => {}
    }
}

/// Forwards bytes in one direction. Bytes are lost while the link is cut.
async fn carry(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    state: &LinkState,
    born: u64,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::time::timeout(POLL_INTERVAL, from.read(&mut bytes)).await;
        let now = state.now();
        // The link was healed since: both ends must reconnect.
        if now.is_multiple_of(2) && now != born {
            return;
        }
        match read {
            Err(_) => {}
            // A cut link does not forward the close of a connection either.
            Ok(Ok(0) | Err(_)) if !now.is_multiple_of(2) => tokio::time::sleep(POLL_INTERVAL).await,
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) if now != born => {}
            Ok(Ok(count)) => {
                if to.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that echoes every byte.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        address
    }

    async fn round_trip(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        stream.write_all(&[byte]).await.ok()?;
        tokio::time::timeout(Duration::from_secs(10), stream.read_u8()).await.ok()?.ok()
    }

    #[tokio::test]
    async fn cut_link_loses_bytes_and_closes_connections_when_healed() {
        let forwarder = Forwarder::start(echo().await).await.unwrap();
        let mut before = TcpStream::connect(forwarder.address).await.unwrap();
        assert_eq!(round_trip(&mut before, 1).await, Some(1));
        forwarder.cut();
        before.write_all(&[2]).await.unwrap();
        let mut during = TcpStream::connect(forwarder.address).await.unwrap();
        during.write_all(&[3]).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(500), before.read_u8()).await;
        assert!(answer.is_err(), "a cut link must deliver neither bytes nor a close: {answer:?}");
        forwarder.heal();
        assert!(
            before.read_u8().await.is_err() && during.read_u8().await.is_err(),
            "both connections are closed"
        );
        let mut after = TcpStream::connect(forwarder.address).await.unwrap();
        assert_eq!(round_trip(&mut after, 4).await, Some(4), "lost bytes are not delivered");
    }
}

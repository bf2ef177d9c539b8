//! A TCP stream that checks the permit of its request before each write to the socket.
//!
//! Encoding and encrypting a request takes longer than the system call that sends it. A process that is stopped
//! meanwhile (SIGSTOP, a frozen cgroup) could hold an expired fence when it continues, so the fence is checked after
//! these steps too.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::net::TcpStream;

use crate::stack::wire::SendPermit;

/// A byte stream to the server.
pub(crate) trait Stream: Read + Write + Send + Unpin + 'static {
    /// Returns the gate of the socket under all layers of this stream.
    fn gate(&self) -> WriteGate;
}

/// The permit of the request that a connection carries. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct WriteGate(Arc<Mutex<Option<SendPermit>>>);

impl WriteGate {
    /// Sets the permit of the next request; without a permit every write passes.
    pub(crate) fn set(&self, permit: Option<SendPermit>) {
        *self.lock() = permit;
    }

    fn check(&self) -> io::Result<()> {
        match self.lock().as_ref() {
            Some(permit) if !permit.is_valid() => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SendPermit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A TCP stream with a gate.
pub(crate) struct GatedStream {
    stream: TokioIo<TcpStream>,
    gate: WriteGate,
}

impl GatedStream {
    pub(crate) fn new(stream: TokioIo<TcpStream>) -> Self {
        Self { stream, gate: WriteGate::default() }
    }

    /// Writes, unless the gate is closed.
    fn write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TokioIo<TcpStream>>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.gate.check()?;
        write(Pin::new(&mut this.stream), cx)
    }
}

impl Read for GatedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl Write for GatedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write_vectored(cx, buffers))
    }
}

impl Connection for GatedStream {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Stream for GatedStream {
    fn gate(&self) -> WriteGate {
        self.gate.clone()
    }
}

impl<S: Stream> Stream for MaybeHttpsStream<S> {
    fn gate(&self) -> WriteGate {
        match self {
            MaybeHttpsStream::Http(stream) => stream.gate(),
            MaybeHttpsStream::Https(stream) => stream.inner().get_ref().0.inner().gate(),
        }
    }
}

//! Response bodies: empty, bytes known in advance, or an open stream.
//!
//! Guarantees:
//! - A body of known length reports the length before it is read.
//! - Chunks are passed through unchanged: all responses that carry an object share its bytes.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _};
use http_body::{Frame, SizeHint};

/// The error that ends a body early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The connection was reset.
    #[error("response truncated: the connection was reset; retry the request")]
    Truncated,
}

type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// The body of a response.
pub struct Body(Kind);

enum Kind {
    /// Chunks known in advance, with the number of bytes that remain.
    Pieces(VecDeque<Bytes>, u64),
    /// An open stream.
    Stream(Frames),
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Body {
        Body(Kind::Pieces(VecDeque::new(), 0))
    }

    /// Returns a body of one chunk.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Body {
        Body::from_chunks([bytes.into()])
    }

    /// Returns a body of several chunks.
    pub fn from_chunks(pieces: impl IntoIterator<Item = Bytes>) -> Body {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Body(Kind::Pieces(pieces, length))
    }

    /// Returns a body that yields the items of `stream` until it ends or fails.
    pub fn stream(stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Body {
        Body(Kind::Stream(Box::pin(stream)))
    }

    /// Replaces the bytes of a body with known length; leaves a stream unchanged.
    pub(crate) fn map_known(self, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Body {
        match self.0 {
            Kind::Pieces(pieces, _) => {
                let pieces: Vec<_> = pieces.into();
                Body::from_bytes(change(&pieces.concat()))
            }
            stream @ Kind::Stream(_) => Body(stream),
        }
    }

    /// Returns whether the body is an open stream: the response to a watch.
    pub fn is_stream(&self) -> bool {
        matches!(self.0, Kind::Stream(_))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Pieces(pieces, left) => Poll::Ready(pieces.pop_front().map(|piece| {
                *left = left.saturating_sub(piece.len() as u64);
                Ok(Frame::data(piece))
            })),
            Kind::Stream(stream) => stream.poll_next_unpin(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Pieces(pieces, _) => pieces.is_empty(),
            Kind::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pieces(_, left) => SizeHint::with_exact(*left),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::empty()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Pieces(pieces, left) => {
                f.debug_struct("Body").field("pieces", &pieces.len()).field("left", left).finish()
            }
            Kind::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

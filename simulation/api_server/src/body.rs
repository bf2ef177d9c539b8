//! What answers are made of: nothing, bytes known at once, or a stream that continues.
//!
//! Guarantees:
//! - A body whose length is known says so before it is read.
//! - Pieces are handed on as they are: the bytes of an object are shared by every answer that carries it.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _};
use http_body::{Frame, SizeHint};

/// Why a body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The connection was cut.
    #[error("the connection was cut in the middle of the answer; ask again")]
    Truncated,
}

type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// The body of an answer.
pub struct Body(Kind);

enum Kind {
    /// Known at once; the number is what is left of its length.
    Pieces(VecDeque<Bytes>, u64),
    /// Goes on until it ends.
    Stream(Frames),
}

impl Body {
    /// Nothing.
    pub fn empty() -> Body {
        Body(Kind::Pieces(VecDeque::new(), 0))
    }

    /// Bytes.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Body {
        Body::from_chunks([bytes.into()])
    }

    /// Bytes, one piece after the other.
    pub fn from_chunks(pieces: impl IntoIterator<Item = Bytes>) -> Body {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Body(Kind::Pieces(pieces, length))
    }

    /// What a stream yields, until it ends or fails.
    pub fn stream(stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Body {
        Body(Kind::Stream(Box::pin(stream)))
    }

    /// The same with other bytes, unless it is a stream.
    pub(crate) fn map_known(self, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Body {
        match self.0 {
            Kind::Pieces(pieces, _) => {
                let pieces: Vec<_> = pieces.into();
                Body::from_bytes(change(&pieces.concat()))
            }
            stream @ Kind::Stream(_) => Body(stream),
        }
    }

    /// Whether it continues for as long as somebody reads: the answer to a watch.
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

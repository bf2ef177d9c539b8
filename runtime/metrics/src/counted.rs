//! A gauge of things that are in progress.

use prometheus::IntGauge;

/// Increments a gauge, and decrements it when it is dropped: also after a panic, and if a future is dropped.
///
/// # Examples
/// ```
/// # use windlass_metrics::{Counted, Metrics};
/// let connections = Metrics::new().admin().serving.connections;
/// let open = Counted::new(&connections);
/// assert_eq!(connections.get(), 1);
/// drop(open);
/// assert_eq!(connections.get(), 0);
/// ```
#[derive(Debug)]
pub struct Counted<'a>(&'a IntGauge);

impl<'a> Counted<'a> {
    /// Increments the gauge.
    pub fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

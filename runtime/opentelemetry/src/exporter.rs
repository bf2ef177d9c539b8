//! Logs when exports begin to fail, and when they succeed again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// An exporter whose failures are logged once.
#[derive(Debug)]
pub(crate) struct LoggedExporter<E> {
    inner: E,
    is_failing: AtomicBool,
}

impl<E> LoggedExporter<E> {
    pub(crate) fn new(inner: E) -> Self {
        Self { inner, is_failing: AtomicBool::new(false) }
    }
}

impl<E: SpanExporter> SpanExporter for LoggedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.inner.export(batch).await;
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => {
                tracing::warn!(%error, spans, "trace export failed; dropping spans until the collector responds");
            }
            Ok(()) if was_failing => tracing::info!("trace export recovered"),
            Ok(()) | Err(_) => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

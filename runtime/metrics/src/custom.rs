//! Families that controllers bring along, beside the table: made once, shared afterwards.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

#[derive(Debug, Default)]
pub(crate) struct Custom {
    families: Mutex<BTreeMap<String, CustomFamily>>,
}

#[derive(Clone, Debug)]
enum CustomFamily {
    Counter(IntCounterVec),
    Gauge(IntGaugeVec),
    Histogram(HistogramVec),
}

impl Custom {
    pub(crate) fn counter(
        &self,
        registry: &Registry,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
    ) -> IntCounter {
        let made = || IntCounterVec::new(Opts::new(name, help), &keys(labels));
        match self.family(name, || register(registry, made()).map(CustomFamily::Counter)) {
            CustomFamily::Counter(vector) => {
                child(name, vector.get_metric_with_label_values(&values(labels)))
            }
            other => refuse(name, &other),
        }
    }

    pub(crate) fn gauge(
        &self,
        registry: &Registry,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
    ) -> IntGauge {
        let made = || IntGaugeVec::new(Opts::new(name, help), &keys(labels));
        match self.family(name, || register(registry, made()).map(CustomFamily::Gauge)) {
            CustomFamily::Gauge(vector) => child(name, vector.get_metric_with_label_values(&values(labels))),
            other => refuse(name, &other),
        }
    }

    pub(crate) fn histogram(
        &self,
        registry: &Registry,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
        labels: &[(&str, &str)],
    ) -> Histogram {
        let made = || HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &keys(labels));
        match self.family(name, || register(registry, made()).map(CustomFamily::Histogram)) {
            CustomFamily::Histogram(vector) => {
                child(name, vector.get_metric_with_label_values(&values(labels)))
            }
            other => refuse(name, &other),
        }
    }

    fn family(&self, name: &str, make: impl FnOnce() -> prometheus::Result<CustomFamily>) -> CustomFamily {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(family) = families.get(name) {
            return family.clone();
        }
        let family = make().unwrap_or_else(|error| panic!("the metric {name} does not fit: {error}"));
        families.insert(name.to_owned(), family.clone());
        family
    }
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> prometheus::Result<C> {
    let vector = made?;
    registry.register(Box::new(vector.clone()))?;
    Ok(vector)
}

fn child<C>(name: &str, found: prometheus::Result<C>) -> C {
    found.unwrap_or_else(|error| panic!("the metric {name} exists with other labels: {error}"))
}

fn refuse(name: &str, other: &CustomFamily) -> ! {
    panic!("the metric {name} exists with another kind: {other:?}")
}

fn keys<'a>(labels: &[(&'a str, &str)]) -> Vec<&'a str> {
    labels.iter().map(|(key, _)| *key).collect()
}

fn values<'a>(labels: &[(&str, &'a str)]) -> Vec<&'a str> {
    labels.iter().map(|(_, value)| *value).collect()
}

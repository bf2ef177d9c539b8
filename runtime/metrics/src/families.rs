//! Metric families by name: the built-in families, registered at start, and the families that controllers add.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, exponential_buckets,
};

use crate::names::{self, Buckets, FamilyDescriptor, MetricType};

/// The families of one registry.
///
/// # Panics
/// Every method panics if a family conflicts with a registered one. The built-in table is constant, and a test
/// registers all of it.
#[derive(Debug)]
pub(crate) struct Families {
    registry: Registry,
    by_name: Mutex<BTreeMap<String, Vector>>,
}

/// The metrics of one family, one per combination of label values.
#[derive(Clone, Debug)]
enum Vector {
    Counter(IntCounterVec),
    FloatCounter(CounterVec),
    Gauge(IntGaugeVec),
    FloatGauge(GaugeVec),
    Histogram(HistogramVec),
}
/// The labels of a custom family with their values.
/// Labels of a custom family with their values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Families {
    /// Creates a registry that contains every built-in family.
    pub(crate) fn new() -> Self {
        let families = Self { registry: Registry::new(), by_name: Mutex::default() };
        for family in names::ALL {
            families.find_or_register(family.name, || Vector::of(family));
        }
        families
    }

    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    pub(crate) fn counter(&self, family: &FamilyDescriptor, labels: &[&str]) -> IntCounter {
        self.counters(family).with_label_values(labels)
    }

    pub(crate) fn gauge(&self, family: &FamilyDescriptor, labels: &[&str]) -> IntGauge {
        self.gauges(family).with_label_values(labels)
    }

    pub(crate) fn histogram(&self, family: &FamilyDescriptor, labels: &[&str]) -> Histogram {
        self.histograms(family).with_label_values(labels)
    }

    pub(crate) fn float_counter(&self, family: &FamilyDescriptor) -> Counter {
        match self.vector(family) {
            Vector::FloatCounter(vector) => vector.with_label_values::<&str>(&[]),
            other => other.contradicts(family.name),
        }
    }

    pub(crate) fn float_gauge(&self, family: &FamilyDescriptor, labels: &[&str]) -> Gauge {
        match self.vector(family) {
            Vector::FloatGauge(vector) => vector.with_label_values(labels),
            other => other.contradicts(family.name),
        }
    }

    pub(crate) fn counters(&self, family: &FamilyDescriptor) -> IntCounterVec {
        match self.vector(family) {
            Vector::Counter(vector) => vector,
            other => other.contradicts(family.name),
        }
    }

    pub(crate) fn gauges(&self, family: &FamilyDescriptor) -> IntGaugeVec {
        match self.vector(family) {
            Vector::Gauge(vector) => vector,
            other => other.contradicts(family.name),
        }
    }

    pub(crate) fn histograms(&self, family: &FamilyDescriptor) -> HistogramVec {
        match self.vector(family) {
            Vector::Histogram(vector) => vector,
            other => other.contradicts(family.name),
        }
    }

    pub(crate) fn custom_counter(&self, name: &str, help: &str, labels: Labels<'_>) -> IntCounter {
        let made = || IntCounterVec::new(Opts::new(name, help), &keys(labels)).map(Vector::Counter);
        match self.custom(name, made) {
            Vector::Counter(vector) => child(name, vector.get_metric_with_label_values(&values(labels))),
            other => other.contradicts(name),
        }
    }

    pub(crate) fn custom_gauge(&self, name: &str, help: &str, labels: Labels<'_>) -> IntGauge {
        let made = || IntGaugeVec::new(Opts::new(name, help), &keys(labels)).map(Vector::Gauge);
        match self.custom(name, made) {
            Vector::Gauge(vector) => child(name, vector.get_metric_with_label_values(&values(labels))),
            other => other.contradicts(name),
        }
    }

    pub(crate) fn custom_histogram(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        buckets: Vec<f64>,
    ) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets);
        match self.custom(name, || HistogramVec::new(options, &keys(labels)).map(Vector::Histogram)) {
            Vector::Histogram(vector) => child(name, vector.get_metric_with_label_values(&values(labels))),
            other => other.contradicts(name),
        }
    }

    fn vector(&self, family: &FamilyDescriptor) -> Vector {
        self.find_or_register(family.name, || Vector::of(family))
    }

    fn custom(&self, name: &str, make: impl FnOnce() -> prometheus::Result<Vector>) -> Vector {
        let is_in_table = names::ALL.iter().any(|family| family.name == name);
        assert!(!is_in_table, "cannot register metric {name}: it is a built-in family; choose another name");
        self.find_or_register(name, make)
    }

    fn find_or_register(&self, name: &str, make: impl FnOnce() -> prometheus::Result<Vector>) -> Vector {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vector) = by_name.get(name) {
            return vector.clone();
        }
        let registered = make().and_then(|vector| {
            self.registry.register(vector.collector())?;
            Ok(vector)
        });
        let vector = registered.unwrap_or_else(|error| panic!("cannot register metric {name}: {error}"));
        by_name.insert(name.to_owned(), vector.clone());
        vector
    }
}

impl Vector {
    fn of(family: &FamilyDescriptor) -> prometheus::Result<Self> {
        let (options, labels) = (Opts::new(family.name, family.help), family.labels);
        match family.kind {
            MetricType::Counter => IntCounterVec::new(options, labels).map(Self::Counter),
            MetricType::FloatCounter => CounterVec::new(options, labels).map(Self::FloatCounter),
            MetricType::Gauge => IntGaugeVec::new(options, labels).map(Self::Gauge),
            MetricType::FloatGauge => GaugeVec::new(options, labels).map(Self::FloatGauge),
            MetricType::Histogram(buckets) => {
                let options = HistogramOpts::from(options).buckets(bounds(buckets));
                HistogramVec::new(options, labels).map(Self::Histogram)
            }
        }
    }

    fn collector(&self) -> Box<dyn Collector> {
        match self.clone() {
            Self::Counter(vector) => Box::new(vector),
            Self::FloatCounter(vector) => Box::new(vector),
            Self::Gauge(vector) => Box::new(vector),
            Self::FloatGauge(vector) => Box::new(vector),
            Self::Histogram(vector) => Box::new(vector),
        }
    }

    fn contradicts(&self, name: &str) -> ! {
        panic!("metric {name} is already registered with another type: {self:?}")
    }
}

/// Returns the upper bounds of `buckets`.
pub(crate) fn bounds(buckets: Buckets) -> Vec<f64> {
    match buckets {
        Buckets::Fixed(bounds) => bounds.to_vec(),
        Buckets::Exponential { start, factor, count } => exponential_buckets(start, factor, count)
            .unwrap_or_else(|error| panic!("invalid buckets {buckets:?}: {error}")),
    }
}

fn child<C>(name: &str, found: prometheus::Result<C>) -> C {
    found.unwrap_or_else(|error| panic!("metric {name} is already registered with other labels: {error}"))
}

fn keys<'a>(labels: &[(&'a str, &str)]) -> Vec<&'a str> {
    labels.iter().map(|(key, _)| *key).collect()
}

fn values<'a>(labels: &[(&str, &'a str)]) -> Vec<&'a str> {
    labels.iter().map(|(_, value)| *value).collect()
}

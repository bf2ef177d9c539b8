//! From a line of the table to a registered vector of children.

use prometheus::core::Collector;
use prometheus::{
    CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};

use crate::names::{Buckets, Family, Kind};

/// Registers families of the table in one registry.
///
/// # Panics
/// Every method panics on a family that does not fit: the table is constant, and a test registers all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Families<'a>(pub(crate) &'a Registry);

impl Families<'_> {
    pub(crate) fn counter(self, family: &Family) -> IntCounterVec {
        expect_kind(family, family.kind == Kind::Counter);
        self.register(family, IntCounterVec::new(options(family), family.labels))
    }

    pub(crate) fn float_counter(self, family: &Family) -> CounterVec {
        expect_kind(family, family.kind == Kind::FloatCounter);
        self.register(family, CounterVec::new(options(family), family.labels))
    }

    pub(crate) fn gauge(self, family: &Family) -> IntGaugeVec {
        expect_kind(family, family.kind == Kind::Gauge);
        self.register(family, IntGaugeVec::new(options(family), family.labels))
    }

    pub(crate) fn float_gauge(self, family: &Family) -> GaugeVec {
        expect_kind(family, family.kind == Kind::FloatGauge);
        self.register(family, GaugeVec::new(options(family), family.labels))
    }

    pub(crate) fn histogram(self, family: &Family) -> HistogramVec {
        let Kind::Histogram(buckets) = family.kind else { panic!("{} is not a histogram", family.name) };
        let options = HistogramOpts::from(options(family)).buckets(bounds(buckets));
        self.register(family, HistogramVec::new(options, family.labels))
    }

    /// The only child of a family without labels.
    pub(crate) fn single_float_gauge(self, family: &Family) -> Gauge {
        self.float_gauge(family).with_label_values::<&str>(&[])
    }

    fn register<C: Collector + Clone + 'static>(self, family: &Family, made: prometheus::Result<C>) -> C {
        let registered = made.and_then(|vector| {
            self.0.register(Box::new(vector.clone()))?;
            Ok(vector)
        });
        registered.unwrap_or_else(|error| panic!("the family {} does not fit: {error}", family.name))
    }
}

/// The upper bounds that `buckets` stands for.
pub(crate) fn bounds(buckets: Buckets) -> Vec<f64> {
    match buckets {
        Buckets::Fixed(bounds) => bounds.to_vec(),
        Buckets::Exponential { start, factor, count } => exponential_buckets(start, factor, count)
            .unwrap_or_else(|error| panic!("the buckets {buckets:?} do not fit: {error}")),
    }
}

fn options(family: &Family) -> Opts {
    Opts::new(family.name, family.help)
}

fn expect_kind(family: &Family, fits: bool) {
    assert!(fits, "{} is a {:?}", family.name, family.kind);
}

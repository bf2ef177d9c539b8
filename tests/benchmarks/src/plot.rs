//! Curves over the number of objects, as SVG.
//!
//! Guarantees: both axes are logarithmic, so that linear growth is a line with slope 1. A curve has one point per
//! number of objects: the median.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::amount;
use crate::results::{Comparison, Unit};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colors that remain distinct for color-blind readers (Okabe and Ito).
const COLORS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// The curves of one metric of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The workload and the metric.
    pub title: String,
    unit: Unit,
    /// Points (number of objects, median) by contender, in the order of measurement.
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// The powers of ten around all points.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Plot {
    /// Returns one plot for each metric of each workload that was measured for at least two numbers of objects.
    pub fn of(comparisons: &[Comparison]) -> Vec<Plot> {
        let mut plots: BTreeMap<String, Plot> = BTreeMap::new();
        for comparison in comparisons {
            let Some(size) = comparison.size.filter(|_| has_growth(comparison)) else { continue };
            let title = format!("{}: {}", comparison.workload, comparison.metric.name);
            let empty = || Plot { title: title.clone(), unit: comparison.metric.unit, curves: Vec::new() };
            let plot = plots.entry(title.clone()).or_insert_with(empty);
            for figure in &comparison.figures {
                plot.add(&figure.contender.name, (size as f64, figure.median));
            }
        }
        let has_curve = |plot: &Plot| plot.curves.iter().any(|(_, points)| points.len() > 1);
        plots.into_values().filter(has_curve).collect()
    }

    fn add(&mut self, contender: &str, point: (f64, f64)) {
        // A logarithmic axis has no zero.
        if point.1 <= 0.0 {
            return;
        }
        match self.curves.iter_mut().find(|(name, _)| name == contender) {
            Some((_, points)) => points.push(point),
            None => self.curves.push((contender.to_owned(), vec![point])),
        }
    }

    /// Returns a file name for the plot.
    pub fn file_name(&self) -> String {
        let words: Vec<&str> =
            self.title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        format!("{}.svg", words.join("-").to_lowercase())
    }

    /// Returns the plot as SVG.
    pub fn svg(&self) -> String {
        let axes = Axes::around(&self.curves);
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
        );
        svg.push_str("\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
        line(&mut svg, format_args!(r#"<text x="{LEFT}" y="20" font-size="14">{}</text>"#, self.title));
        self.draw_grid(&axes, &mut svg);
        for (index, (name, points)) in self.curves.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            draw_curve(&axes, points, color, &mut svg);
            let y = TOP + 20.0 * index as f64;
            let (x, text) = (WIDTH - RIGHT + 20.0, WIDTH - RIGHT + 38.0);
            line(&mut svg, format_args!(r#"<rect x="{x}" y="{y}" width="12" height="12" fill="{color}"/>"#));
            line(&mut svg, format_args!(r#"<text x="{text}" y="{}">{name}</text>"#, y + 11.0));
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_grid(&self, axes: &Axes, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in powers_of_ten(axes.x) {
            let x = axes.to_x(value);
            line(svg, format_args!(r##"<path d="M{x:.1} {TOP}V{bottom}" stroke="#ddd"/>"##));
            line(
                svg,
                format_args!(r#"<text x="{x:.1}" y="{}" text-anchor="middle">{value}</text>"#, bottom + 18.0),
            );
        }
        for value in powers_of_ten(axes.y) {
            let (y, label) = (axes.to_y(value), amount(value, self.unit));
            line(svg, format_args!(r##"<path d="M{LEFT} {y:.1}H{right}" stroke="#ddd"/>"##));
            line(
                svg,
                format_args!(
                    r#"<text x="{}" y="{:.1}" text-anchor="end">{label}</text>"#,
                    LEFT - 6.0,
                    y + 4.0
                ),
            );
        }
        let middle = LEFT.midpoint(right);
        line(
            svg,
            format_args!(r#"<text x="{middle}" y="{}" text-anchor="middle">objects</text>"#, HEIGHT - 12.0),
        );
    }
}

/// Whether a metric can grow with the number of objects and has a goal: others would only be more files.
fn has_growth(comparison: &Comparison) -> bool {
    comparison.metric.goal.is_some() && comparison.metric.unit != Unit::Number
}

impl Axes {
    fn around(curves: &[(String, Vec<(f64, f64)>)]) -> Axes {
        let points = || curves.iter().flat_map(|(_, points)| points);
        Axes { x: decades(points().map(|point| point.0)), y: decades(points().map(|point| point.1)) }
    }

    fn to_x(&self, value: f64) -> f64 {
        LEFT + share(value, self.x) * (WIDTH - LEFT - RIGHT)
    }

    fn to_y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - share(value, self.y) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Returns the exponents of the powers of ten around the values, at least one decade.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    let low = low.log10().floor();
    (low, high.log10().ceil().max(low + 1.0))
}

fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    (value.log10() - low) / (high - low)
}

fn powers_of_ten((low, high): (f64, f64)) -> Vec<f64> {
    let mut exponents = Vec::new();
    let mut exponent = low;
    while exponent <= high {
        exponents.push(10f64.powf(exponent));
        exponent += 1.0;
    }
    exponents
}

fn draw_curve(axes: &Axes, points: &[(f64, f64)], color: &str, svg: &mut String) {
    let at: Vec<String> =
        points.iter().map(|(x, y)| format!("{:.1},{:.1}", axes.to_x(*x), axes.to_y(*y))).collect();
    line(
        svg,
        format_args!(
            r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2"/>"#,
            at.join(" ")
        ),
    );
    for (x, y) in points {
        let (x, y) = (axes.to_x(*x), axes.to_y(*y));
        line(svg, format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{color}"/>"#));
    }
}

fn line(svg: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(svg, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Contender, Goal, Metric, Sample};

    fn samples(sizes: &[usize]) -> Vec<Sample> {
        let sample = |size: &usize| Sample {
            workload: "cache of Pods".to_owned(),
            size: Some(*size),
            metric: Metric::with_goal("time", Unit::Seconds, Goal::AtMost(1.0)),
            contender: Contender::windlass("windlass"),
            value: *size as f64 / 1000.0,
        };
        sizes.iter().map(sample).collect()
    }

    #[test]
    fn linear_growth_is_a_diagonal_over_the_whole_plot() {
        let plots = Plot::of(&Comparison::of(&samples(&[1000, 10_000, 100_000])));
        assert_eq!(plots.len(), 1);
        assert_eq!(plots[0].file_name(), "cache-of-pods-time.svg");
        let svg = plots[0].svg();
        assert!(svg.contains(r#"points="80.0,370.0 315.0,205.0 550.0,40.0""#), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn single_number_of_objects_has_no_plot() {
        assert!(Plot::of(&Comparison::of(&samples(&[1000]))).is_empty());
    }
}

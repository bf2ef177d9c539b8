//! The dashboard with its data as an SVG picture, for the documentation.
//!
//! Guarantees:
//! - Panels have the positions, titles and units of the dashboard, so [`structure`] depends on the dashboard only.
//! - A panel without a curve states `No data`, as Grafana does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// Seconds of data on the horizontal axis.
pub const WINDOW: u32 = 60;

/// Width and height of a unit of the grid in pixels.
const UNIT: (f64, f64) = (50.0, 27.0);
/// Height of the title above the grid.
const TOP: f64 = 40.0;
/// Distance between neighboring panels.
const GAP: f64 = 6.0;
/// Distances between the frame of a panel and its axes: left, top, right and bottom.
const AXES: (f64, f64, f64, f64) = (52.0, 32.0, 12.0, 76.0);
/// Lines of a legend, their distance, and the width of a character in pixels, estimated for the font below.
const LEGEND: (usize, f64, f64) = (4, 13.0, 5.9);
/// Colors that remain distinct for color-blind readers (Okabe and Ito).
const COLORS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// The class of lines that depend on the dashboard only.
const FRAME: &str = "class=\"frame\"";
/// The class of the text of a panel without a curve.
const EMPTY: &str = "class=\"empty\"";

/// A curve of a panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The name in the legend.
    pub legend: String,
    /// Seconds since the start of the window, and values.
    pub points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Dashboard {
    title: String,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Panel {
    id: u64,
    #[serde(rename = "type")]
    kind: String,
    title: String,
    grid_pos: Position,
    #[serde(default)]
    field_config: FieldConfig,
}

#[derive(Deserialize)]
struct Position {
    x: f64,
    y: f64,
    w: f64,
    h: f64,
}

#[derive(Default, Deserialize)]
struct FieldConfig {
    defaults: Defaults,
}

#[derive(Default, Deserialize)]
struct Defaults {
    unit: String,
}

/// Returns a legend of Grafana with the labels of a series.
#[must_use]
pub fn legend(template: &str, labels: &BTreeMap<String, String>) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (label, rest) = part.split_once("}}").unwrap_or((part, ""));
        text += labels.get(label).map_or("", String::as_str);
        text += rest;
    }
    text.trim().to_owned()
}

/// Returns the dashboard as an SVG document. `curves` contains those of each panel, by its ID.
///
/// # Errors
/// If the dashboard has another structure than [`crate::dashboard::dashboard`] creates.
pub fn svg(dashboard: &Value, curves: &BTreeMap<u64, Vec<Curve>>) -> Result<String> {
    let dashboard = Dashboard::deserialize(dashboard).context("cannot read the dashboard")?;
    let right = |panel: &Panel| (panel.grid_pos.x + panel.grid_pos.w) * UNIT.0;
    let bottom = |panel: &Panel| TOP + (panel.grid_pos.y + panel.grid_pos.h) * UNIT.1;
    let width = dashboard.panels.iter().map(right).fold(0.0, f64::max);
    let height = dashboard.panels.iter().map(bottom).fold(0.0, f64::max);
    let mut svg = String::new();
    line(
        &mut svg,
        &format!(
            r#"<svg {FRAME} xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10">"#
        ),
    );
    line(&mut svg, &format!(r##"<rect {FRAME} width="100%" height="100%" fill="#f4f5f5"/>"##));
    let title = escaped(&dashboard.title);
    line(
        &mut svg,
        &format!(r#"<text {FRAME} x="8" y="26" font-size="18" font-weight="bold">{title}</text>"#),
    );
    for panel in &dashboard.panels {
        if panel.kind == "row" {
            panel.draw_row(&mut svg);
        } else {
            panel.draw(curves.get(&panel.id).map_or(&[], Vec::as_slice), &mut svg);
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Returns the lines that depend on the dashboard only: size, frames, titles and units.
pub fn structure(svg: &str) -> Vec<&str> {
    svg.lines().filter(|line| line.contains(FRAME)).collect()
}

/// Returns the titles of panels without a curve.
pub fn without_data(svg: &str) -> Vec<&str> {
    let mut title = "";
    let mut found = Vec::new();
    for line in svg.lines() {
        if line.contains(FRAME) && line.starts_with("<text") {
            title = line.split(['<', '>']).nth(2).unwrap_or_default();
        } else if line.contains(EMPTY) {
            found.push(title);
        }
    }
    found
}

impl Panel {
    /// Returns left, top, width and height in pixels.
    fn area(&self) -> (f64, f64, f64, f64) {
        let Position { x, y, w, h } = self.grid_pos;
        (x * UNIT.0 + GAP / 2.0, TOP + y * UNIT.1 + GAP / 2.0, w * UNIT.0 - GAP, h * UNIT.1 - GAP)
    }

    fn draw_row(&self, svg: &mut String) {
        let ((x, y, ..), title) = (self.area(), escaped(&self.title));
        let (x, y) = (x + 4.0, y + 15.0);
        line(
            svg,
            &format!(r#"<text {FRAME} x="{x}" y="{y}" font-size="14" font-weight="bold">{title}</text>"#),
        );
    }

    fn draw(&self, curves: &[Curve], svg: &mut String) {
        let (left, top, width, height) = self.area();
        let unit = Unit::of(&self.field_config.defaults.unit);
        line(
            svg,
            &format!(
                r##"<rect {FRAME} x="{left}" y="{top}" width="{width}" height="{height}" rx="3" fill="#fff" stroke="#d8d9da"/>"##
            ),
        );
        let (x, y, title) = (left + 8.0, top + 18.0, escaped(&self.title));
        line(
            svg,
            &format!(r#"<text {FRAME} x="{x}" y="{y}" font-size="12" font-weight="bold">{title}</text>"#),
        );
        let (x, name) = (left + width - 8.0, unit.name);
        line(svg, &format!(r##"<text {FRAME} x="{x}" y="{y}" fill="#555" text-anchor="end">{name}</text>"##));
        if curves.iter().all(|curve| curve.points.is_empty()) {
            let (x, y) = (left + width / 2.0, top + height / 2.0);
            line(
                svg,
                &format!(
                    r##"<text {EMPTY} x="{x}" y="{y}" fill="#777" text-anchor="middle">No data</text>"##
                ),
            );
            return;
        }
        let plot = Plot::new((left, top, width, height), curves, unit);
        plot.draw_axes(svg);
        for (curve, color) in curves.iter().zip(COLORS.iter().cycle()) {
            plot.draw_curve(curve, color, svg);
        }
        draw_legend((left + 10.0, plot.bottom + 32.0, width - 20.0), curves, svg);
    }
}

/// A unit of Grafana.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    /// Factors and symbols of values, in descending order.
    scales: &'static [(f64, &'static str)],
}

impl Unit {
    fn of(name: &str) -> Self {
        const COUNTS: &[(f64, &str)] = &[(1e6, " M"), (1e3, " k"), (1.0, "")];
        match name {
            "s" => Self {
                name: "seconds",
                scales: &[(86400.0, " d"), (3600.0, " h"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs")],
            },
            "bytes" => Self {
                name: "bytes",
                scales: &[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1024.0, " KiB"), (1.0, " B")],
            },
            "percentunit" => Self { name: "percent", scales: &[(0.01, " %")] },
            "ops" => Self { name: "per second", scales: COUNTS },
            "reqps" => Self { name: "requests per second", scales: COUNTS },
            _ => Self { name: "", scales: COUNTS },
        }
    }

    /// Returns the factor and the symbol for values up to `largest`.
    fn scale(self, largest: f64) -> (f64, &'static str) {
        let fits = |scale: &&(f64, &'static str)| scale.0 <= largest;
        self.scales.iter().find(fits).or(self.scales.last()).copied().unwrap_or((1.0, ""))
    }
}

/// The axes of a panel.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The upper end of the vertical axis. The lower end is 0, as in the dashboard.
    largest: f64,
    /// The value of one unit of a label, and its symbol.
    scale: (f64, &'static str),
}

impl Plot {
    fn new((left, top, width, height): (f64, f64, f64, f64), curves: &[Curve], unit: Unit) -> Self {
        let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
        let largest = values.fold(0.0, f64::max);
        let scale = unit.scale(largest);
        Self {
            left: left + AXES.0,
            right: left + width - AXES.2,
            top: top + AXES.1,
            bottom: top + height - AXES.3,
            largest: rounded_up(largest / scale.0) * scale.0,
            scale,
        }
    }

    fn to_x(&self, seconds: f64) -> f64 {
        self.left + seconds / f64::from(WINDOW) * (self.right - self.left)
    }

    fn to_y(&self, value: f64) -> f64 {
        self.bottom - value / self.largest * (self.bottom - self.top)
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right, top, bottom) = (self.left, self.right, self.top, self.bottom);
        for share in [0.0, 0.5, 1.0] {
            let value = share * self.largest;
            let (y, number, symbol) = (self.to_y(value), value / self.scale.0, self.scale.1);
            line(svg, &format!(r##"<path d="M{left:.1} {y:.1}H{right:.1}" stroke="#e4e5e6"/>"##));
            let (x, y) = (left - 5.0, y + 3.5);
            line(svg, &format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end">{number}{symbol}</text>"#));
        }
        for (ago, anchor) in [(WINDOW, "start"), (WINDOW / 2, "middle"), (0, "end")] {
            let x = self.to_x(f64::from(WINDOW - ago));
            line(svg, &format!(r##"<path d="M{x:.1} {top:.1}V{bottom:.1}" stroke="#e4e5e6"/>"##));
            let text = if ago == 0 { "now".to_owned() } else { format!("{ago} s ago") };
            let y = bottom + 14.0;
            line(svg, &format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
        }
    }

    fn draw_curve(&self, curve: &Curve, color: &str, svg: &mut String) {
        let mut points = without_flat_parts(&curve.points);
        if let [single] = points[..] {
            // The caps of a line between two equal points are visible.
            points.push(single);
        }
        let at =
            |(seconds, value): &(f64, f64)| format!("{:.1},{:.1}", self.to_x(*seconds), self.to_y(*value));
        let points = points.iter().map(at).collect::<Vec<_>>().join(" ");
        line(
            svg,
            &format!(
                r#"<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5" stroke-linecap="round"/>"#
            ),
        );
    }
}

/// Omits each point between two others of the same value.
fn without_flat_parts(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let is_needed = |index: usize| {
        let neighbors = index.checked_sub(1).and_then(|before| points.get(before)).zip(points.get(index + 1));
        neighbors.is_none_or(|(before, after)| before.1 != points[index].1 || after.1 != points[index].1)
    };
    (0..points.len()).filter(|index| is_needed(*index)).map(|index| points[index]).collect()
}

/// Returns the smallest of 1, 2 and 5 times a power of ten that is not smaller; 1 for 0.
fn rounded_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value);
    factor.unwrap_or(10.0) * power
}

/// Draws the names of curves from left to right in lines. If they need too many lines, the last one states how many are
/// missing.
fn draw_legend((left, top, width): (f64, f64, f64), curves: &[Curve], svg: &mut String) {
    let (lines, distance, _) = LEGEND;
    let positions = legend_positions(width, curves);
    let fits = positions.last().is_none_or(|(_, row)| *row < lines);
    let shown = if fits { lines } else { lines - 1 };
    for ((curve, color), (x, row)) in curves.iter().zip(COLORS.iter().cycle()).zip(&positions) {
        if *row < shown {
            let (x, y, name) = (left + x, top + *row as f64 * distance, escaped(&curve.legend));
            let (text, middle) = (x + 14.0, y - 3.5);
            line(
                svg,
                &format!(
                    r#"<path d="M{x:.1} {middle:.1}h10" stroke="{color}" stroke-width="3"/><text x="{text:.1}" y="{y:.1}">{name}</text>"#
                ),
            );
        }
    }
    let hidden = positions.iter().filter(|(_, row)| *row >= shown).count();
    if hidden > 0 {
        let y = top + shown as f64 * distance;
        line(svg, &format!(r##"<text x="{left:.1}" y="{y:.1}" fill="#555">+ {hidden} more</text>"##));
    }
}

/// Returns the left end and the line of each name.
fn legend_positions(width: f64, curves: &[Curve]) -> Vec<(f64, usize)> {
    let (mut next, mut row) = (0.0, 0);
    let mut place = |curve: &Curve| {
        let entry = 24.0 + curve.legend.chars().count() as f64 * LEGEND.2;
        if next > 0.0 && next + entry > width {
            (next, row) = (0.0, row + 1);
        }
        let position = (next, row);
        next += entry;
        position
    };
    curves.iter().map(&mut place).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn line(svg: &mut String, text: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(svg, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::dashboard;

    fn curve(legend: &str, points: &[(f64, f64)]) -> Curve {
        Curve { legend: legend.to_owned(), points: points.to_vec() }
    }

    fn picture(curves: &[Curve]) -> String {
        svg(&dashboard(), &BTreeMap::from([(2, curves.to_vec())])).expect("a picture")
    }

    #[test]
    fn structure_contains_each_title_and_depends_on_no_curve() {
        let dashboard = dashboard();
        let empty = svg(&dashboard, &BTreeMap::new()).expect("a picture");
        let structure_of_empty = structure(&empty);
        assert_eq!(structure_of_empty, structure(&picture(&[curve("a & b", &[(0.0, 1.0), (60.0, 3.0)])])));
        let panels = dashboard["panels"].as_array().expect("panels");
        for panel in panels {
            let title = format!(">{}<", panel["title"].as_str().expect("a title"));
            assert!(structure_of_empty.iter().any(|line| line.contains(&title)), "{title}: {empty}");
        }
        let graphs = panels.iter().filter(|panel| panel["type"] != "row").count();
        assert_eq!(without_data(&empty).len(), graphs);
    }

    #[test]
    fn curve_spans_window_and_axis_ends_at_rounded_value() {
        let svg = picture(&[curve("a & b", &[(0.0, 0.0), (30.0, 2000.0), (60.0, 4100.0)])]);
        assert!(!without_data(&svg).contains(&"Leader status"), "{svg}");
        assert!(svg.contains(">5 k</text>") && svg.contains(">2.5 k</text>"), "{svg}");
        assert!(svg.contains(">a &amp; b</text>"), "{svg}");
        assert!(svg.contains(r#"points="55.0,204.0 220.0,163.2 385.0,120.4""#), "{svg}");
    }

    #[test]
    fn legend_states_number_of_names_that_do_not_fit() {
        let curves: Vec<Curve> =
            (0..30).map(|index| curve(&format!("replicaset-controller {index}"), &[(0.0, 1.0)])).collect();
        let svg = picture(&curves);
        let names = svg.matches(">replicaset-controller ").count();
        assert_eq!(names, 6, "two names on each of three lines: {svg}");
        assert!(svg.contains(r##" y="275.0" fill="#555">+ 24 more</text>"##), "inside of the panel: {svg}");
    }

    #[test]
    fn legend_replaces_labels_and_omits_missing_ones() {
        let labels = BTreeMap::from([("name".to_owned(), "web".to_owned())]);
        assert_eq!(legend("{{instance}} {{name}} tasks", &labels), "web tasks");
        assert_eq!(legend("sent", &labels), "sent");
    }

    #[test]
    fn values_have_the_symbol_of_their_size() {
        for (unit, value, label) in [
            ("s", 0.004, "5 ms"),
            ("s", 7_776_000.0, "100 d"),
            ("bytes", 31_000_000.0, "50 MiB"),
            ("percentunit", 0.13, "20 %"),
            ("none", 0.0, "1"),
        ] {
            let plot = Plot::new((0.0, 0.0, 400.0, 200.0), &[curve("a", &[(0.0, value)])], Unit::of(unit));
            assert_eq!(format!("{}{}", plot.largest / plot.scale.0, plot.scale.1), label);
        }
    }
}

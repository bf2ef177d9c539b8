//! The screen as an SVG picture, for the documentation.
//!
//! Guarantees: the picture contains the text and the colors of every cell, and is legible on light and dark pages.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Columns and rows of the picture.
pub(crate) const SIZE: (u16, u16) = (110, 34);

/// Width and height of a cell in pixels, for a font of 13 pixels.
const CELL: (f32, f32) = (7.8, 17.0);

/// Space around the text in pixels.
const MARGIN: f32 = 12.0;

/// Returns the cells as an SVG document.
pub(crate) fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (f32::from(buffer.area.width), f32::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 2.0 * MARGIN, rows * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" \
         font-size=\"13\">\n<title>Screen of cargo demo</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for row in 0..buffer.area.height {
        let y = MARGIN + (f32::from(row) + 0.8) * CELL.1;
        let runs = runs(buffer, row);
        if runs.iter().any(|run| !run.text.trim().is_empty()) {
            // Writing to a String does not fail.
            let _ = writeln!(svg, "<text y=\"{y:.1}\" xml:space=\"preserve\">{}</text>", spans(&runs));
        }
    }
    svg + "</svg>\n"
}

/// Neighboring cells of one style.
struct Run {
    column: u16,
    style: &'static str,
    text: String,
}

fn runs(buffer: &Buffer, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..buffer.area.width {
        let cell = &buffer[(column, row)];
        let style = style(cell);
        match runs.last_mut() {
            Some(run) if run.style == style => run.text += cell.symbol(),
            _ => runs.push(Run { column, style, text: cell.symbol().to_owned() }),
        }
    }
    runs
}

fn spans(runs: &[Run]) -> String {
    let shown = runs.iter().filter(|run| !run.text.trim().is_empty());
    let span = |run: &Run| {
        let x = MARGIN + f32::from(run.column) * CELL.0;
        let text = run.text.trim_end().replace('&', "&amp;").replace('<', "&lt;");
        format!("<tspan x=\"{x:.1}\" {}>{text}</tspan>", run.style)
    };
    shown.map(span).collect()
}

/// Returns the attributes of a cell that the screen uses.
fn style(cell: &Cell) -> &'static str {
    match cell.fg {
        _ if cell.modifier.contains(Modifier::BOLD) => "fill=\"#e6e6e6\" font-weight=\"bold\"",
        _ if cell.modifier.contains(Modifier::DIM) => "fill=\"#8a919e\"",
        Color::Green => "fill=\"#7ec77e\"",
        Color::Yellow => "fill=\"#e0b458\"",
        Color::Cyan => "fill=\"#6cc3d5\"",
        _ => "fill=\"#c9ced6\"",
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn picture_contains_text_and_styles_of_cells() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 2));
        buffer.set_string(2, 1, "a < b", Style::new().fg(Color::Green));
        buffer.set_string(9, 1, "PODS", Modifier::BOLD);
        let svg = svg(&buffer);
        assert!(svg.contains("fill=\"#7ec77e\">a &lt; b</tspan>"), "{svg}");
        assert!(svg.contains("font-weight=\"bold\">PODS</tspan>"), "{svg}");
        assert_eq!(svg.matches("<text ").count(), 1, "an empty row has no text: {svg}");
    }
}

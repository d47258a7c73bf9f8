//! A terminal's screen as an SVG.

use std::fmt::Write as _;

/// Pixels of one cell, and around all.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;
/// Room above the first line, for the command.
const HEAD: f64 = 38.0;

const BACKGROUND: &str = "#1b1d23";
const FOREGROUND: &str = "#d7dae0";

/// A character with its colour and whether it is faint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) color: &'static str,
    pub(super) is_faint: bool,
}

/// The screen's rows down to the last that is not blank.
pub(super) fn rows(screen: &vt100::Screen) -> Vec<Vec<Cell>> {
    let (height, width) = screen.size();
    let mut rows: Vec<Vec<Cell>> = (0..height.get())
        .map(|row| {
            let cells = (0..width.get()).filter_map(|column| screen.cell(row, column));
            let mut cells: Vec<Cell> = cells
                .map(|cell| Cell {
                    text: match cell.contents() {
                        "" => " ".to_owned(),
                        text => text.to_owned(),
                    },
                    color: color(cell.fgcolor()),
                    is_faint: cell.dim(),
                })
                .collect();
            let end = cells.iter().rposition(|cell| cell.text != " ");
            cells.truncate(end.map_or(0, |end| end + 1));
            cells
        })
        .collect();
    let end = rows.iter().rposition(|row| !row.is_empty());
    rows.truncate(end.map_or(0, |end| end + 1));
    rows
}

fn color(color: vt100::Color) -> &'static str {
    match color {
        vt100::Color::Idx(1) => "#ef6b73",
        vt100::Color::Idx(2) => "#8cc570",
        vt100::Color::Idx(3) => "#e2b86b",
        _ => FOREGROUND,
    }
}

/// Puts `by` wherever `text` stands in a row, with the looks of its first character.
pub(super) fn replace(row: &mut Vec<Cell>, text: &str, by: &str) {
    let wanted: Vec<String> = text.chars().map(String::from).collect();
    let mut at = 0;
    while at + wanted.len() <= row.len() {
        let is_there = row[at..]
            .iter()
            .zip(&wanted)
            .all(|(cell, one)| cell.text == *one);
        if is_there {
            let looks = row[at].clone();
            let cells = by.chars().map(|c| Cell {
                text: c.into(),
                ..looks.clone()
            });
            row.splice(at..at + wanted.len(), cells);
            at += by.chars().count();
        } else {
            at += 1;
        }
    }
}

/// What the rows say.
pub(super) fn text(rows: &[Vec<Cell>]) -> String {
    let line = |row: &Vec<Cell>| {
        row.iter()
            .map(|cell| cell.text.as_str())
            .collect::<String>()
    };
    rows.iter().map(|row| line(row) + "\n").collect()
}

/// The picture of a command and what it showed in so many columns.
pub(super) fn render(command: &str, rows: &[Vec<Cell>], columns: u16) -> String {
    let width = 2.0 * MARGIN + f64::from(columns) * CELL.0;
    let lines = u32::try_from(rows.len()).expect("few lines");
    let height = HEAD + f64::from(lines) * CELL.1 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, SFMono-Regular, Menlo, \
         Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <text x=\"{MARGIN}\" y=\"26\" fill=\"#8a90a0\">$ <tspan fill=\"{FOREGROUND}\">{}</tspan></text>\n",
        escape(command),
        escape(command)
    );
    for (at, row) in (0_u32..).zip(rows) {
        let y = HEAD + f64::from(at) * CELL.1 + 14.0;
        push_row(&mut svg, row, y);
    }
    svg.push_str("</svg>\n");
    svg
}

/// One row: a text for each run of equal looks, at its own place, so that no font moves a column.
fn push_row(svg: &mut String, row: &[Cell], y: f64) {
    let mut column = 0_u32;
    for run in row.chunk_by(|one, next| one.color == next.color && one.is_faint == next.is_faint) {
        let text: String = run.iter().map(|cell| cell.text.as_str()).collect();
        let len = u32::try_from(run.len()).expect("a row");
        if !text.trim().is_empty() {
            let blanks = u32::try_from(text.len() - text.trim_start().len()).expect("a row");
            let x = MARGIN + f64::from(column + blanks) * CELL.0;
            let color = if run[0].is_faint {
                "#8a90a0"
            } else {
                run[0].color
            };
            let shown = text.trim();
            let length = f64::from(u32::try_from(shown.chars().count()).expect("a row")) * CELL.0;
            // Writing to a string cannot fail.
            _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.0}\" fill=\"{color}\" textLength=\"{length:.1}\">{}</text>",
                escape(shown)
            );
        }
        column += len;
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

//! The tables and the picture of the report.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::report::{Row, Target, median};

/// What stands around the table in README.md and in the page.
const BEGIN: &str = "<!-- written by cargo bench -- --write -->";
const END: &str = "<!-- end -->";

/// All that was measured in one run.
pub(crate) fn full_table(rows: &[Row]) -> String {
    let mut text = "| figure | direct | do-nothing relay | mcpd | outcome | target |\n\
         | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows {
        let [direct, relay, mcpd] = row.measured.map(number);
        let decimals = row.decimals();
        _ = writeln!(
            text,
            "| {} | {direct} | {relay} | {mcpd} | {:.decimals$} {} | {} |",
            row.figure.name(),
            row.outcome,
            row.unit,
            row.figure.target().text(decimals.min(1)),
        );
    }
    text
}

fn number(number: f64) -> String {
    match number {
        nothing if nothing.is_nan() => "–".to_owned(),
        small if small < 100.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

/// The outcomes of all runs beside the targets.
fn short_table(runs: &[Vec<Row>]) -> String {
    let mut text =
        "| figure | each run | median | target |\n| --- | --- | --- | --- |\n".to_owned();
    for (at, row) in runs[0].iter().enumerate() {
        let outcomes: Vec<f64> = runs.iter().map(|rows| rows[at].outcome).collect();
        let decimals = row.decimals();
        let each: Vec<String> = outcomes
            .iter()
            .map(|one| format!("{one:.decimals$}"))
            .collect();
        let middle = median(outcomes);
        let target = row.figure.target();
        let mark = if target.is_met(middle) {
            ""
        } else {
            " (missed)"
        };
        _ = writeln!(
            text,
            "| {} | {} | {middle:.decimals$} {} | {}{mark} |",
            row.figure.name(),
            each.join(", "),
            row.unit,
            target.text(decimals.min(1)),
        );
    }
    text
}

/// Puts the tables into README.md and docs/performance.md, and draws the picture.
pub(crate) fn write(runs: &[Vec<Row>]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    replace(&root.join("README.md"), &short_table(runs));
    let mut all = String::new();
    for (at, rows) in runs.iter().enumerate() {
        _ = write!(all, "Run {}:\n\n{}\n", at + 1, full_table(rows));
    }
    replace(&root.join("docs/performance.md"), all.trim_end());
    fs::write(root.join("docs/performance.svg"), picture(runs)).expect("the picture is written");
}

fn replace(path: &Path, table: &str) {
    let text = fs::read_to_string(path).expect("the page is there");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place");
    let (_, after) = rest.split_once(END).expect("the place has an end");
    let text = format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim_end());
    fs::write(path, text).expect("the page is written");
}

/// Pixels for each row, for the names, and for a ratio of 1.
const ROW: f64 = 30.0;
const NAMES: f64 = 400.0;
const ONE: f64 = 170.0;
/// Bars end here.
const LONGEST: f64 = 2.0;

/// A bar for each ratio, with a mark where its target is.
fn picture(runs: &[Vec<Row>]) -> String {
    let rows: Vec<(usize, &Row)> = runs[0]
        .iter()
        .enumerate()
        .filter(|(_, row)| row.figure.is_ratio())
        .collect();
    let (width, height) = (NAMES + ONE * LONGEST + 130.0, ROW * (rows.len() + 1) as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (line, (at, row)) in rows.into_iter().enumerate() {
        let outcome = median(runs.iter().map(|rows| rows[at].outcome).collect());
        let target = row.figure.target();
        let color = if target.is_met(outcome) {
            "#2f855a"
        } else {
            "#c05621"
        };
        let top = ROW * (line as f64 + 0.5);
        let length = ONE * outcome.clamp(0.0, LONGEST);
        _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{NAMES}\" y=\"{top}\" width=\"{length:.0}\" height=\"18\" fill=\"{color}\"/>\n\
             <text x=\"{:.0}\" y=\"{}\">{outcome:.2} {}</text>",
            NAMES - 8.0,
            top + 14.0,
            row.figure.name().replace('`', ""),
            NAMES + length + 6.0,
            top + 14.0,
            row.unit,
        );
        if let Target::AtMost(limit) | Target::AtLeast(limit) = target {
            let x = NAMES + ONE * limit;
            _ = writeln!(
                svg,
                "<line x1=\"{x:.0}\" y1=\"{}\" x2=\"{x:.0}\" y2=\"{}\" stroke=\"#000000\" stroke-width=\"2\"/>",
                top - 3.0,
                top + 21.0,
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

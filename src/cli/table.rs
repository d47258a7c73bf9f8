//! Tables: rows of text in columns that fit a terminal.
//!
//! Decides widths, which columns give way where there is no room, and where a long last cell goes.
//! Knows nothing of what stands in the cells.

use super::output::{Style, Tone};

/// Blanks between two columns.
const GAP: usize = 2;
/// How far a last cell is indented that has a line of its own.
const INDENT: usize = 4;
/// Lines that such a cell may take.
const OWN_LINES: usize = 4;

/// A table whose last column is free text.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    headings: &'a [&'a str],
    /// Columns that go first where there is no room, by number.
    gives_way: &'a [usize],
    rows: Vec<Row>,
}

/// One row, with the tone of each of its cells.
#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    tones: Vec<Tone>,
}

impl<'a> Table<'a> {
    /// A table with these headings; the columns `gives_way` are left out, in that order, where the
    /// terminal is too narrow for all.
    pub(crate) fn new(headings: &'a [&'a str], gives_way: &'a [usize]) -> Self {
        Self {
            headings,
            gives_way,
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that `tones` does not reach are plain.
    pub(crate) fn row(&mut self, cells: Vec<String>, tones: &[(usize, Tone)]) {
        let mut by_cell = vec![Tone::Plain; cells.len()];
        for &(cell, tone) in tones {
            by_cell[cell] = tone;
        }
        self.rows.push(Row {
            cells,
            tones: by_cell,
        });
    }

    /// The table for a terminal of `width` columns; as wide as it has to be without one.
    pub(crate) fn render(&self, style: Style, width: Option<usize>) -> String {
        let columns = self.columns(width);
        let widths: Vec<usize> = (0..self.headings.len()).map(|at| self.width(at)).collect();
        let room = width.map(|width| {
            let before: usize = columns.iter().map(|at| widths[*at] + GAP).sum();
            width.saturating_sub(before)
        });
        let layout = Layout {
            columns,
            widths,
            room,
            width,
            style,
        };
        let mut text = String::new();
        let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        layout.push(&mut text, &headings, &vec![Tone::Faint; headings.len()]);
        for row in &self.rows {
            layout.push(&mut text, &row.cells, &row.tones);
        }
        text
    }

    /// The widest cell of a column.
    fn width(&self, column: usize) -> usize {
        let cells = self
            .rows
            .iter()
            .map(|row| row.cells[column].chars().count());
        cells
            .chain([self.headings[column].len()])
            .max()
            .unwrap_or(0)
    }

    /// The columns before the last one that there is room for.
    fn columns(&self, width: Option<usize>) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..self.headings.len() - 1).collect();
        let Some(width) = width else { return columns };
        for out in self.gives_way {
            let needed: usize = columns.iter().map(|at| self.width(*at) + GAP).sum();
            if needed <= width + GAP {
                break;
            }
            columns.retain(|at| at != out);
        }
        columns
    }
}

struct Layout {
    columns: Vec<usize>,
    widths: Vec<usize>,
    /// What is left of a line for the last cell; `None` for any length.
    room: Option<usize>,
    width: Option<usize>,
    style: Style,
}

impl Layout {
    fn push(&self, text: &mut String, cells: &[String], tones: &[Tone]) {
        let last = cells.len() - 1;
        let fits = self
            .room
            .is_none_or(|room| cells[last].chars().count() <= room);
        let shown: Vec<usize> = match fits {
            true => self.columns.iter().copied().chain([last]).collect(),
            false => self.columns.clone(),
        };
        // Empty cells at the end leave no blanks behind.
        let used = shown.iter().rposition(|at| !cells[*at].is_empty());
        for (position, &at) in shown
            .iter()
            .enumerate()
            .take(used.map_or(0, |used| used + 1))
        {
            let is_end = Some(position) == used;
            let width = if is_end { 0 } else { self.widths[at] };
            text.push_str(
                &self
                    .style
                    .paint(tones[at], &format!("{:width$}", cells[at])),
            );
            if !is_end {
                text.push_str(&" ".repeat(GAP));
            }
        }
        text.push('\n');
        if !fits {
            for line in self.own_lines(&cells[last]) {
                text.push_str(&" ".repeat(INDENT));
                text.push_str(&self.style.paint(tones[last], &line));
                text.push('\n');
            }
        }
    }

    /// A last cell that has lines of its own, ended with an ellipsis if even these are too few.
    fn own_lines(&self, cell: &str) -> Vec<String> {
        let room = self
            .width
            .unwrap_or(usize::MAX)
            .saturating_sub(INDENT)
            .max(1);
        let mut lines = wrap(cell, room);
        if lines.len() > OWN_LINES {
            lines.truncate(OWN_LINES);
            if let Some(last) = lines.last_mut() {
                *last = cut(&format!("{last}…"), room);
            }
        }
        lines
    }
}

/// `text` in lines of at most `room` characters, broken at blanks where there are any.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let used = lines.last().map_or(0, |line| line.chars().count());
        let blank = usize::from(used > 0);
        if used + blank + word.len() > room && used > 0 {
            lines.push(String::new());
        } else if used > 0
            && let Some(line) = lines.last_mut()
        {
            line.push(' ');
        }
        // A word that no line can hold is broken where the line ends.
        while word.len() > room {
            let rest = word.split_off(room);
            if let Some(line) = lines.last_mut() {
                line.extend(word);
            }
            lines.push(String::new());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            line.extend(word);
        }
    }
    lines
}

/// `text` with at most `limit` characters, the last of them an ellipsis if some are left out.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(width: Option<usize>, expected: &str) {
        let mut table = Table::new(&["NAME", "PID", "SAYS"], &[1]);
        table.row(vec!["a".into(), "1234".into(), String::new()], &[]);
        let sentence = "nobody answers at the door of the house".to_owned();
        table.row(vec!["long-name".into(), "-".into(), sentence], &[]);
        assert_eq!(table.render(Style { color: false }, width), expected);
    }

    #[test]
    fn a_table_that_nothing_limits_is_as_wide_as_it_has_to_be() {
        check(
            None,
            "NAME       PID   SAYS\n\
             a          1234\n\
             long-name  -     nobody answers at the door of the house\n",
        );
    }

    #[test]
    fn a_last_cell_without_room_has_lines_of_its_own() {
        check(
            Some(30),
            "NAME       PID   SAYS\n\
             a          1234\n\
             long-name  -\n    nobody answers at the door\n    of the house\n",
        );
    }

    #[test]
    fn columns_give_way_where_there_is_no_room() {
        check(
            Some(14),
            "NAME\n    SAYS\na\nlong-name\n    nobody\n    answers at\n    the door\n    of the hou…\n"
                .replace("of the hou…", "of the…")
                .as_str(),
        );
    }

    #[test]
    fn words_wrap_and_long_ones_break() {
        assert_eq!(
            wrap("ab cd efghijk l", 4),
            ["ab", "cd", "efgh", "ijk", "l"].map(str::to_owned)
        );
        assert_eq!(wrap("", 4), [String::new()]);
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}

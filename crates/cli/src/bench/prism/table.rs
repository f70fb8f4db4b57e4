//! Tables of figures: the same rows as CSV for programs and in columns for people.

/// A column: its name in the CSV, its heading in print, and how many decimals its numbers have there.
/// An empty name or heading leaves it out.
pub(super) struct Column {
    name: &'static str,
    heading: &'static str,
    decimals: usize,
}

pub(super) const fn column(name: &'static str, heading: &'static str, decimals: usize) -> Column {
    Column { name, heading, decimals }
}

pub(super) enum Cell {
    Text(String),
    Number(f64),
    Nothing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Nothing, Self::Number)
    }
}

pub(super) struct Table<'a> {
    columns: &'a [Column],
    rows: Vec<Vec<Cell>>,
}

impl<'a> Table<'a> {
    pub(super) fn new<const N: usize>(
        columns: &'a [Column; N],
        rows: impl Iterator<Item = [Cell; N]>,
    ) -> Self {
        Self { columns, rows: rows.map(Vec::from).collect() }
    }

    /// With a line of names first; numbers as they are.
    pub(super) fn csv(&self) -> String {
        let kept = |column: &&Column| !column.name.is_empty();
        let names: Vec<_> = self.columns.iter().filter(kept).map(|column| column.name).collect();
        let mut csv = names.join(",") + "\n";
        for row in &self.rows {
            let cells = row.iter().zip(self.columns).filter(|(_, column)| kept(column));
            let cells: Vec<_> = cells
                .map(|(cell, _)| match cell {
                    Cell::Text(text) => text.clone(),
                    Cell::Number(number) => number.to_string(),
                    Cell::Nothing => String::new(),
                })
                .collect();
            csv += &cells.join(",");
            csv.push('\n');
        }
        csv
    }

    /// Lines of columns that are as wide as what is in them: words to the left, numbers to the right.
    pub(super) fn lines(&self) -> Vec<String> {
        let printed: Vec<usize> =
            (0..self.columns.len()).filter(|at| !self.columns[*at].heading.is_empty()).collect();
        let text = |row: &[Cell], at: usize| match &row[at] {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => format!("{number:.*}", self.columns[at].decimals),
            Cell::Nothing => String::new(),
        };
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| text(row, at).chars().count());
            cells.chain([self.columns[at].heading.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = printed.iter().map(|at| width(*at)).collect();
        let words = |at: usize| self.rows.iter().any(|row| matches!(row[at], Cell::Text(_)));
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells = printed.iter().zip(&widths).map(|(at, width)| match words(*at) {
                true => format!("{:<width$}", cell(*at)),
                false => format!("{:>width$}", cell(*at)),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let headings = line(&|at| self.columns[at].heading.to_owned());
        let rows = self.rows.iter().map(|row| line(&|at| text(row, at)));
        std::iter::once(headings).chain(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_all_digits_and_lines_are_aligned() {
        let columns = [
            column("system", "system", 0),
            column("p50_us", "p50 us", 2),
            column("floor_us", "", 0),
            column("", "of floor", 0),
        ];
        let rows = [
            ["prism".into(), 1.23456.into(), Some(0.5).into(), "2.47 x".into()],
            ["a longer name".into(), 1000.0.into(), None.into(), Cell::Nothing],
        ];
        let table = Table::new(&columns, rows.into_iter());
        assert_eq!(table.csv(), "system,p50_us,floor_us\nprism,1.23456,0.5\na longer name,1000,\n");
        let lines = [
            "system          p50 us  of floor",
            "prism             1.23  2.47 x",
            "a longer name  1000.00",
        ];
        assert_eq!(table.lines(), lines);
    }
}

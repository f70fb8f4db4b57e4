//! Pictures: small SVG drawings of lines and bars, without a library.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#c8553d", "#588157", "#8e6c88", "#d4a017", "#3d5a80", "#9c6644", "#6c757d"];

/// A named series.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points: x and y.
    pub points: Vec<(f64, f64)>,
    /// Drawn as single marks, not joined: what was published, beside what was measured.
    pub marks: bool,
}

/// The largest of the usual steps that cuts `span` into at least four.
fn step(span: f64) -> f64 {
    let unit = 10f64.powf((span / 4.0).max(1e-9).log10().floor());
    [5.0, 2.0, 1.0].map(|m| m * unit).into_iter().find(|s| span / s >= 4.0).unwrap_or(unit)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

struct Canvas {
    svg: String,
    x: (f64, f64),
    y: (f64, f64),
}

impl Canvas {
    fn new(title: &str, x_label: &str, y_label: &str, x: (f64, f64), y: (f64, f64)) -> Self {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18,{}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(title),
            HEIGHT - 14.0,
            escape(x_label),
            TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
            escape(y_label),
        );
        Self { svg, x, y }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let along = |value: f64, (from, to): (f64, f64)| (value - from) / (to - from).max(1e-9);
        (
            LEFT + along(x, self.x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - along(y, self.y) * (HEIGHT - TOP - BOTTOM),
        )
    }

    fn y_axis(&mut self) {
        let step = step(self.y.1 - self.y.0);
        let mut value = self.y.0;
        while value <= self.y.1 + step / 100.0 {
            let (x, y) = self.place((self.x.0, value));
            let _ = writeln!(
                self.svg,
                "<line x1=\"{x}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                x - 6.0,
                y + 4.0,
                super::round(value, 3),
            );
            value += step;
        }
    }

    fn x_axis(&mut self) {
        let step = step(self.x.1 - self.x.0);
        let mut value = self.x.0;
        while value <= self.x.1 + step / 100.0 {
            let (x, y) = self.place((value, self.y.0));
            let _ = writeln!(
                self.svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                y + 18.0,
                super::round(value, 3),
            );
            value += step;
        }
    }

    fn legend(&mut self, index: usize, name: &str) {
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 10.0 + 18.0 * index as f64);
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            self.svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y}\">{}</text>",
            y - 9.0,
            x + 16.0,
            escape(name),
        );
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// Draws series over a common x axis.
#[must_use]
pub fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let most = |of: fn(&(f64, f64)) -> f64| {
        series.iter().flat_map(|s| &s.points).map(of).fold(0.0, f64::max) * 1.05
    };
    let mut canvas =
        Canvas::new(title, x_label, y_label, (0.0, most(|p| p.0)), (0.0, most(|p| p.1)));
    canvas.y_axis();
    canvas.x_axis();
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let places: Vec<_> = series.points.iter().map(|point| canvas.place(*point)).collect();
        if !series.marks {
            let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                canvas.svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
        }
        for (x, y) in places {
            let _ = if series.marks {
                writeln!(
                    canvas.svg,
                    "<path d=\"M{:.1} {:.1} l12 12 m0 -12 l-12 12\" stroke=\"{colour}\" \
                     stroke-width=\"2\"/>",
                    x - 6.0,
                    y - 6.0
                )
            } else {
                writeln!(
                    canvas.svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                )
            };
        }
        canvas.legend(index, &series.name);
    }
    canvas.finish()
}

/// Draws groups of bars: for each group its name, and a value for each series, or none.
#[must_use]
pub fn bars(
    title: &str,
    y_label: &str,
    series: &[&str],
    groups: &[(String, Vec<Option<f64>>)],
) -> String {
    let top = groups.iter().flat_map(|(_, v)| v).flatten().fold(0.0f64, |a, b| a.max(*b)) * 1.05;
    let mut canvas = Canvas::new(title, "", y_label, (0.0, groups.len() as f64), (0.0, top));
    canvas.y_axis();
    let width = 0.8 / series.len().max(1) as f64;
    for (group, (name, values)) in groups.iter().enumerate() {
        for (index, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let left = group as f64 + 0.1 + width * index as f64;
            let (x, y) = canvas.place((left, *value));
            let (end, floor) = canvas.place((left + width * 0.9, 0.0));
            let _ = writeln!(
                canvas.svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                end - x,
                floor - y,
                COLOURS[index % COLOURS.len()],
            );
        }
        let (x, y) = canvas.place((group as f64 + 0.5, 0.0));
        let _ = writeln!(
            canvas.svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y + 18.0,
            escape(name),
        );
    }
    for (index, name) in series.iter().enumerate() {
        canvas.legend(index, name);
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_stay_within_their_frame_and_escape_names() {
        let series = [Series {
            name: "a <b> & c".into(),
            points: vec![(1.0, 2.0), (9.0, 40.0)],
            marks: false,
        }];
        let svg = lines("title", "x", "y", &series);
        assert!(svg.contains("a &lt;b&gt; &amp; c") && !svg.contains("NaN"), "{svg}");
        let groups = [("one".to_owned(), vec![Some(3.0), None]), ("two".to_owned(), vec![None; 2])];
        let svg = bars("title", "us", &["s", "t"], &groups);
        assert_eq!(svg.matches("<rect").count(), 1 + 1 + 2, "background, one bar, two names");
        assert!((1..8).all(|n| step(10f64.powi(n)) > 0.0));
    }
}

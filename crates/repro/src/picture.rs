//! Pictures: what was measured, with its intervals, and what was published beside it.

use crate::figure::Figure;
use crate::grade::Outcome;
use crate::points::X;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;
use thiserror::Error;

const SIZE: (u32, u32) = (760, 440);
/// What stands above the greatest value, as a part of it.
const ROOM: f64 = 1.08;

/// Why a picture cannot be drawn.
#[derive(Debug, Error)]
#[error("the picture '{title}' cannot be drawn: {what}")]
pub struct PictureError {
    title: String,
    what: String,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Dots with intervals, joined when x is a number.
    Measured,
    /// Crosses.
    Published,
}

/// A series of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its name.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// Its points: x, y, and where the interval of y begins and ends.
    pub points: Vec<(X, f64, (f64, f64))>,
}

/// A picture of series over one x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Its title.
    pub title: String,
    /// What the x axis shows.
    pub x: String,
    /// What the y axis shows.
    pub y: String,
    /// The series.
    pub traces: Vec<Trace>,
}

impl Picture {
    /// That of a figure as it was measured, published points beside.
    #[must_use]
    pub fn of(figure: &Figure, outcome: &Outcome) -> Self {
        let measured = outcome.points.iter().map(|(name, points)| Trace {
            name: name.clone(),
            mark: Mark::Measured,
            points: points.iter().map(|p| (p.x.clone(), p.median, (p.low, p.high))).collect(),
        });
        let published = figure.points.iter().map(|published| Trace {
            name: format!("published: {}", published.name),
            mark: Mark::Published,
            points: published.points.iter().map(|(x, y)| (x.clone(), *y, (*y, *y))).collect(),
        });
        Self {
            title: format!("{}, {}: {}", figure.work(), figure.item, figure.title),
            x: figure.x.label.clone(),
            y: figure.y.clone(),
            traces: measured.chain(published).collect(),
        }
    }

    /// Draws it.
    ///
    /// # Errors
    /// When the plotting library refuses to.
    pub fn svg(&self) -> Result<String, PictureError> {
        let fail = |what: String| PictureError { title: self.title.clone(), what };
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        self.draw(&root).map_err(|error| fail(error.to_string()))?;
        root.present().map_err(|error| fail(error.to_string()))?;
        drop(root);
        Ok(svg)
    }

    /// The names on the x axis, in the order in which they come; none when all are numbers.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = vec![];
        for (x, ..) in self.traces.iter().flat_map(|trace| &trace.points) {
            if let X::Name(name) = x
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    /// Traces with numbers for x; those of one name stand side by side.
    fn placed(&self, names: &[&str]) -> Vec<Vec<Spot>> {
        let count = self.traces.len().max(1) as f64;
        let place = |trace: usize, x: &X| match x {
            X::Number(number) => *number,
            X::Name(name) => {
                let at = names.iter().position(|known| known == name).unwrap_or(0) as f64;
                at + 0.7 * ((trace as f64 + 0.5) / count - 0.5)
            }
        };
        let finite = |y: f64| if y.is_finite() { y } else { 0.0 };
        let placed = |(i, trace): (usize, &Trace)| {
            let spot = |(x, y, (low, high)): &(X, f64, (f64, f64))| Spot {
                at: (finite(place(i, x)), finite(*y)),
                low: finite(*low),
                high: finite(*high),
            };
            trace.points.iter().map(spot).collect()
        };
        self.traces.iter().enumerate().map(placed).collect()
    }

    fn draw<D: DrawingBackend>(
        &self,
        root: &DrawingArea<D, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<D::ErrorType>> {
        let names = self.names();
        let traces = self.placed(&names);
        let spots = || traces.iter().flatten();
        let x_range = match names.len() {
            0 => range(spots().map(|spot| spot.at.0)),
            count => -0.6..count as f64 - 0.4,
        };
        let y_range = range(spots().flat_map(|spot| [spot.at.1, spot.low, spot.high]));
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(x_range, y_range)?;
        let label = |x: &f64| match names.len() {
            0 => number(*x),
            _ if (x - x.round()).abs() > 1e-6 => String::new(),
            _ => names.get(x.round() as usize).map(ToString::to_string).unwrap_or_default(),
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_labels(if names.is_empty() { 10 } else { 2 * names.len() + 2 })
            .x_label_formatter(&label)
            .y_label_formatter(&|y| number(*y))
            .draw()?;
        for (i, (trace, spots)) in self.traces.iter().zip(&traces).enumerate() {
            draw_trace(&mut chart, (i, trace, spots), names.is_empty())?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()
    }
}

/// A point as it is drawn.
struct Spot {
    at: (f64, f64),
    low: f64,
    high: f64,
}

/// From zero or the least value to the greatest, and some room.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) =
        values.fold((0.0, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    low * ROOM..(high * ROOM).max(low * ROOM + 1e-9)
}

fn draw_trace<'a, D: DrawingBackend + 'a>(
    chart: &mut ChartContext<'a, D, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    (i, trace, spots): (usize, &Trace, &[Spot]),
    joined: bool,
) -> Result<(), DrawingAreaErrorKind<D::ErrorType>> {
    let colour = Palette99::pick(i).to_rgba();
    let style = colour.stroke_width(2);
    let drawn = match trace.mark {
        Mark::Published => {
            chart.draw_series(spots.iter().map(|spot| Cross::new(spot.at, 6, style)))?
        }
        Mark::Measured => {
            chart.draw_series(spots.iter().map(|Spot { at: (x, _), low, high }| {
                PathElement::new(vec![(*x, *low), (*x, *high)], colour)
            }))?;
            if joined {
                let path: Vec<_> = spots.iter().map(|spot| spot.at).collect();
                chart.draw_series([PathElement::new(path, style)])?;
            }
            chart.draw_series(spots.iter().map(|spot| Circle::new(spot.at, 4, colour.filled())))?
        }
    };
    let mark = trace.mark;
    drawn.label(&trace.name).legend(move |(x, y)| match mark {
        Mark::Published => Cross::new((x + 8, y), 5, style).into_dyn(),
        Mark::Measured => Circle::new((x + 8, y), 4, colour.filled()).into_dyn(),
    });
    Ok(())
}

/// A number on an axis: short, with k and M.
fn number(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let text = format!("{value:.3}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match value.abs() {
        size if size >= 1e6 => short(value / 1e6, "M"),
        size if size >= 1e4 => short(value / 1e3, "k"),
        _ => short(value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(points: Vec<(X, f64, (f64, f64))>) -> Picture {
        let trace = |name: &str, mark| Trace { name: name.into(), mark, points: points.clone() };
        Picture {
            title: "a <b> & c".into(),
            x: "clients".into(),
            y: "requests/s".into(),
            traces: vec![trace("here", Mark::Measured), trace("there", Mark::Published)],
        }
    }

    #[test]
    fn pictures_have_their_words_and_points() {
        let numbers = picture(vec![
            (X::Number(5.0), 20_000.0, (19_000.0, 21_000.0)),
            (X::Number(40.0), 1_500_000.0, (1.0, 1_600_000.0)),
        ]);
        let svg = numbers.svg().unwrap();
        for part in
            ["a &lt;b&gt; &amp; c", "clients", "requests/s", "here", "there", "1M", "<circle"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        let names = ["read", "write"].map(|name| (X::Name(name.into()), 5.0, (4.0, 6.0)));
        let svg = picture(names.into()).svg().unwrap();
        assert!(svg.contains("read") && svg.contains("write"), "{svg}");
    }

    #[test]
    fn whatever_the_points_are_a_picture_is_drawn() {
        for points in [
            vec![],
            vec![(X::Number(0.0), 0.0, (0.0, 0.0))],
            vec![(X::Number(f64::NAN), f64::INFINITY, (f64::NAN, f64::NAN))],
            vec![(X::Number(1e12), 1e12, (0.0, 1e12))],
            vec![(X::Name(String::new()), -5.0, (-6.0, -4.0))],
        ] {
            assert!(picture(points).svg().unwrap().contains("</svg>"));
        }
        let short = [1_230_000.0, 12_300.0, 9_999.0, 0.5, 0.0].map(number);
        assert_eq!(short, ["1.23M", "12.3k", "9999", "0.5", "0"]);
    }
}

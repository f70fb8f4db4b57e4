//! What a figure claims, as a comparison of a number made of its series with a published one.
//!
//! ```text
//! comparison = sum (">=" | "<=") number
//! sum        = product { ("+" | "-") product }
//! product    = factor { ("*" | "/") factor }
//! factor     = number | function "(" argument { "," argument } ")" | "(" sum ")"
//! argument   = "\"series\"" | number | "\"name\""
//! ```
//!
//! | function | value |
//! |---|---|
//! | `at("s", x)` | the point at x, a number or a name |
//! | `first("s")`, `last("s")` | the first and the last point |
//! | `max("s")`, `min("s")` | the greatest and the least value |
//! | `argmax("s")` | where the greatest is |
//! | `spread("s")` | the greatest over the least |
//! | `rise("s")` | the least of each value over the one before it: above 1 it rises at every step |
//! | `fall("s")` | the greatest of the same: below 1 it falls at every step |
//! | `least("a", "b")`, `most("a", "b")` | the least and the greatest of a over b, where both have a point |

use crate::points::{Points, X};
use std::collections::BTreeSet;
use std::fmt;
use thiserror::Error;

/// Why a claim cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("claim, column {column}: {what}")]
pub struct ParseError {
    /// Where, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

/// Why a claim has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvalError {
    /// Nothing was measured for a series.
    #[error("nothing was measured of '{0}'")]
    NoSeries(String),
    /// A series lacks a point.
    #[error("'{0}' has no point at {1}")]
    NoPoint(String, String),
    /// Too few points for what is asked of them.
    #[error("'{0}' has too few points")]
    TooFew(String),
    /// The value is no number: something was divided by zero.
    #[error("the value is no number")]
    NoNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    At,
    First,
    Last,
    Max,
    Min,
    Argmax,
    Spread,
    Rise,
    Fall,
    Least,
    Most,
}

impl Function {
    const ALL: [(&'static str, Self); 11] = [
        ("at", Self::At),
        ("first", Self::First),
        ("last", Self::Last),
        ("max", Self::Max),
        ("min", Self::Min),
        ("argmax", Self::Argmax),
        ("spread", Self::Spread),
        ("rise", Self::Rise),
        ("fall", Self::Fall),
        ("least", Self::Least),
        ("most", Self::Most),
    ];

    const fn arguments(self) -> usize {
        match self {
            Self::At | Self::Least | Self::Most => 2,
            _ => 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Binary(char, Box<Self>, Box<Self>),
    Of(Function, String),
    At(String, X),
    Pair(Function, String, String),
}

/// A comparison that holds or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    value: Node,
    /// Whether the value must be at least the bound; at most otherwise.
    pub at_least: bool,
    /// What it is compared with.
    pub bound: f64,
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    /// Reads a comparison.
    ///
    /// # Errors
    /// When the text is none.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let value = parser.sum()?;
        let at_least = match parser.take_any(&[">=", "<="]) {
            Some(">=") => true,
            Some(_) => false,
            None => return Err(parser.wrong("write >= or <= here")),
        };
        let bound = parser.number().ok_or_else(|| parser.wrong("write a number here"))?;
        parser.skip();
        if parser.at < text.len() {
            return Err(parser.wrong("nothing may stand behind the number"));
        }
        Ok(Self { text: text.trim().to_owned(), value, at_least, bound })
    }

    /// The series that it names.
    #[must_use]
    pub fn series(&self) -> BTreeSet<&str> {
        let (mut found, mut left) = (BTreeSet::new(), vec![&self.value]);
        while let Some(node) = left.pop() {
            match node {
                Node::Number(_) => {}
                Node::Binary(_, a, b) => left.extend([&**a, &**b]),
                Node::Of(_, series) | Node::At(series, _) => drop(found.insert(series.as_str())),
                Node::Pair(_, a, b) => found.extend([a.as_str(), b.as_str()]),
            }
        }
        found
    }

    /// The value that is compared.
    ///
    /// # Errors
    /// When the points do not give one.
    pub fn value(&self, points: &Points) -> Result<f64, EvalError> {
        let value = evaluate(&self.value, points)?;
        if value.is_finite() { Ok(value) } else { Err(EvalError::NoNumber) }
    }
}

fn evaluate(node: &Node, points: &Points) -> Result<f64, EvalError> {
    match node {
        Node::Number(number) => Ok(*number),
        Node::Binary(op, a, b) => {
            let (a, b) = (evaluate(a, points)?, evaluate(b, points)?);
            Ok(match op {
                '+' => a + b,
                '-' => a - b,
                '*' => a * b,
                _ => a / b,
            })
        }
        Node::At(series, x) => {
            let found = of(points, series)?.iter().find(|(at, _)| at.is(x));
            let missing = || EvalError::NoPoint(series.clone(), x.to_string());
            found.map(|(_, y)| *y).ok_or_else(missing)
        }
        Node::Of(function, series) => of_one(*function, series, of(points, series)?),
        Node::Pair(function, a, b) => {
            let (over, under) = (of(points, a)?, of(points, b)?);
            let ratio = |(x, y): &(X, f64)| {
                under.iter().find(|(at, _)| at.is(x)).map(|(_, below)| y / below)
            };
            let ratios = over.iter().filter_map(ratio);
            let of_all = match function {
                Function::Least => ratios.reduce(f64::min),
                _ => ratios.reduce(f64::max),
            };
            of_all.ok_or_else(|| EvalError::NoPoint(a.clone(), format!("a place of '{b}'")))
        }
    }
}

fn of<'a>(points: &'a Points, series: &str) -> Result<&'a [(X, f64)], EvalError> {
    match points.get(series) {
        Some(points) if !points.is_empty() => Ok(points),
        _ => Err(EvalError::NoSeries(series.to_owned())),
    }
}

fn of_one(function: Function, series: &str, points: &[(X, f64)]) -> Result<f64, EvalError> {
    let few = || EvalError::TooFew(series.to_owned());
    let values = || points.iter().map(|(_, y)| *y);
    let steps = || points.windows(2).map(|pair| pair[1].1 / pair[0].1);
    let most = || values().reduce(f64::max);
    let least = || values().reduce(f64::min);
    let value = match function {
        Function::First => values().next(),
        Function::Last => values().next_back(),
        Function::Max => most(),
        Function::Min => least(),
        Function::Spread if points.len() > 1 => {
            most().zip(least()).map(|(most, least)| most / least)
        }
        Function::Rise => steps().reduce(f64::min),
        Function::Fall => steps().reduce(f64::max),
        Function::Argmax => {
            let greatest = points.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            greatest.and_then(|(x, _)| x.number())
        }
        _ => None,
    };
    value.ok_or_else(few)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

/// How deep parentheses may stand in each other.
const MAX_DEPTH: usize = 16;

impl<'a> Parser<'a> {
    fn wrong(&mut self, what: impl Into<String>) -> ParseError {
        self.skip();
        let column = self.text[..self.at].chars().count() + 1;
        ParseError { column, what: what.into() }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let there = self.rest().starts_with(token);
        self.at += if there { token.len() } else { 0 };
        there
    }

    fn take_any(&mut self, tokens: &[&'static str]) -> Option<&'static str> {
        tokens.iter().copied().find(|token| self.take(token))
    }

    fn number(&mut self) -> Option<f64> {
        self.skip();
        let part = |c: char| c.is_ascii_digit() || c == '.';
        let length = self.rest().find(|c| !part(c)).unwrap_or(self.rest().len());
        let number = self.rest()[..length].parse().ok().filter(|n: &f64| n.is_finite())?;
        self.at += length;
        Some(number)
    }

    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn quoted(&mut self) -> Option<String> {
        self.skip();
        let inside = self.rest().strip_prefix('"')?;
        let length = inside.find('"')?;
        self.at += length + 2;
        Some(inside[..length].to_owned())
    }

    fn binary(
        &mut self,
        operators: &[&'static str],
        operand: fn(&mut Self) -> Result<Node, ParseError>,
    ) -> Result<Node, ParseError> {
        let mut left = operand(self)?;
        while let Some(operator) = self.take_any(operators) {
            let right = operand(self)?;
            let operator = operator.chars().next().unwrap_or('+');
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Node, ParseError> {
        self.binary(&["+", "-"], Self::product)
    }

    fn product(&mut self) -> Result<Node, ParseError> {
        self.binary(&["*", "/"], Self::factor)
    }

    fn factor(&mut self) -> Result<Node, ParseError> {
        if let Some(number) = self.number() {
            return Ok(Node::Number(number));
        }
        if self.take("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.wrong("too many parentheses"));
            }
            let inside = self.sum()?;
            self.depth -= 1;
            self.must(")")?;
            return Ok(inside);
        }
        self.skip();
        let begin = self.at;
        let word = self.word();
        let known = Function::ALL.iter().find(|(name, _)| *name == word);
        let Some((_, function)) = known else {
            self.at = begin;
            let names: Vec<_> = Function::ALL.iter().map(|(name, _)| *name).collect();
            return Err(self.wrong(match word {
                "" => "write a number, a function or (".to_owned(),
                _ => format!("there is no function '{word}'; there are {}", names.join(", ")),
            }));
        };
        self.must("(")?;
        let series = self.series()?;
        let node = match function.arguments() {
            1 => Node::Of(*function, series),
            _ => {
                self.must(",")?;
                self.second(*function, series)?
            }
        };
        self.must(")")?;
        Ok(node)
    }

    fn second(&mut self, function: Function, series: String) -> Result<Node, ParseError> {
        if function != Function::At {
            return Ok(Node::Pair(function, series, self.series()?));
        }
        let x = match self.number() {
            Some(number) => X::Number(number),
            None => X::Name(self.quoted().ok_or_else(|| self.wrong("write a place here"))?),
        };
        Ok(Node::At(series, x))
    }

    fn series(&mut self) -> Result<String, ParseError> {
        self.quoted().ok_or_else(|| self.wrong("write a series in quotation marks here"))
    }

    fn must(&mut self, token: &str) -> Result<(), ParseError> {
        if self.take(token) { Ok(()) } else { Err(self.wrong(format!("write {token} here"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Points {
        let numbers = |ys: &[f64]| {
            ys.iter().enumerate().map(|(i, y)| (X::Number((i + 1) as f64), *y)).collect()
        };
        let mut points = Points::default();
        points.insert("up".into(), numbers(&[1.0, 2.0, 3.0]));
        points.insert("down".into(), numbers(&[9.0, 6.0, 3.0]));
        points.insert("named".into(), vec![(X::Name("read".into()), 5.0)]);
        points
    }

    #[test]
    fn values_are_of_the_points() {
        for (text, value) in [
            ("at(\"up\", 2) >= 1", 2.0),
            ("at(\"named\", \"read\") >= 1", 5.0),
            ("first(\"down\") - last(\"down\") >= 1", 6.0),
            ("max(\"down\") / max(\"up\") >= 2", 3.0),
            ("min(\"up\") + 2 * (3 - 1) >= 2", 5.0),
            ("argmax(\"up\") >= 2", 3.0),
            ("spread(\"up\") <= 2", 3.0),
            ("rise(\"up\") >= 1", 1.5),
            ("fall(\"down\") <= 1", 2.0 / 3.0),
            ("least(\"down\", \"up\") >= 1", 1.0),
            ("most(\"down\", \"up\") >= 1", 9.0),
            ("8 / 2 / 2 >= 1", 2.0),
        ] {
            let claim = Expression::parse(text).unwrap();
            assert_eq!(claim.value(&points()), Ok(value), "{text}");
        }
        let claim = Expression::parse(" at(\"up\",1)<=1.5 ").unwrap();
        assert_eq!((claim.at_least, claim.bound, claim.to_string().len()), (false, 1.5, 15));
        assert_eq!(claim.series().into_iter().collect::<Vec<_>>(), ["up"]);
    }

    #[test]
    fn what_is_not_there_has_no_value() {
        for (text, error) in [
            ("max(\"none\") >= 1", "nothing was measured of 'none'"),
            ("at(\"up\", 4) >= 1", "'up' has no point at 4"),
            ("spread(\"named\") >= 1", "'named' has too few points"),
            ("rise(\"named\") >= 1", "'named' has too few points"),
            ("argmax(\"named\") >= 1", "'named' has too few points"),
            ("least(\"up\", \"named\") >= 1", "'up' has no point at a place of 'named'"),
            ("1 / (1 - 1) >= 1", "the value is no number"),
        ] {
            let claim = Expression::parse(text).unwrap();
            assert_eq!(claim.value(&points()).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_column() {
        let deep = "(".repeat(17);
        for (text, column, what) in [
            ("", 1, "write a number"),
            ("max(\"a\")", 9, "write >="),
            ("max(\"a\") > 1", 10, "write >="),
            ("max(\"a\") >= x", 13, "write a number"),
            ("max(\"a\") >= 1 2", 15, "nothing may stand"),
            ("max(a) >= 1", 5, "a series in quotation marks"),
            ("max(\"a >= 1", 5, "a series in quotation marks"),
            ("max(\"a\", \"b\") >= 1", 8, "write )"),
            ("least(\"a\") >= 1", 10, "write ,"),
            ("at(\"a\", ) >= 1", 9, "write a place"),
            ("(1 >= 1", 4, "write )"),
            ("1..2 >= 1", 1, "write a number"),
            ("sin(\"a\") >= 1", 1, "no function 'sin'"),
            ("1 + >= 1", 5, "write a number"),
            (deep.as_str(), 18, "too many parentheses"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert_eq!(error.column, column, "{text}: {error}");
            assert!(error.what.contains(what), "{text}: {error}");
        }
    }
}

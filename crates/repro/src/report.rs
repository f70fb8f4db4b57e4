//! The report: one HTML page that needs nothing beside it, and a table.

use crate::claim::{Verdict, shown};
use crate::environment::Environment;
use crate::figure::Figure;
use crate::grade::Outcome;
use std::fmt::Write;

const STYLE: &str = "body{font-family:sans-serif;max-width:62rem;margin:1rem auto;padding:0 1rem;\
    line-height:1.4}table{border-collapse:collapse;margin:.6rem 0}td,th{border:1px solid #ccc;\
    padding:.2rem .5rem;text-align:left;vertical-align:top}svg{max-width:100%;height:auto}\
    .v{font-weight:bold;white-space:nowrap}.REPRODUCED{color:#176b2c}.TREND-ONLY{color:#8a5a00}\
    .NOT-REPRODUCED{color:#a11}.NOT-TESTABLE-HERE{color:#666}code{font-size:.9em}";

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

fn tag(verdict: Verdict) -> String {
    format!("<span class=\"v {verdict}\">{verdict}</span>")
}

/// How many figures have each verdict.
pub(crate) fn counts<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> String {
    let all: Vec<Verdict> = outcomes.map(|outcome| outcome.verdict).collect();
    let of = |verdict| all.iter().filter(|other| **other == verdict).count();
    let words = Verdict::ALL.map(|verdict| format!("{} {verdict}", of(verdict)));
    format!("{} items: {}", all.len(), words.join(", "))
}

/// The page: of each figure what was published, its verdict, claims, picture and numbers. A picture is
/// the text of an SVG.
#[must_use]
pub fn html(all: &[(&Figure, &Outcome, Option<&str>)], environment: &Environment) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Published figures, made again\
         </title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head>\n<body>\n\
         <h1>Published figures, made again</h1>\n<p>{}{}</p>\n",
        counts(all.iter().map(|(_, outcome, _)| *outcome)),
        if environment.quick { ". A quick run: short measurements, few of them." } else { "" }
    );
    page.push_str("<table><tr><th>item</th><th>verdict</th><th>shows</th></tr>\n");
    for (figure, outcome, _) in all {
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{0}\">{1}, {2}</a></td><td>{3}</td><td>{4}</td></tr>",
            escape(&figure.id),
            escape(figure.work()),
            escape(&figure.item),
            tag(outcome.verdict),
            escape(&figure.title)
        );
    }
    page.push_str("</table>\n");
    for (figure, outcome, picture) in all {
        section(&mut page, figure, outcome, *picture);
    }
    let json = serde_json::to_string_pretty(environment).unwrap_or_default();
    let _ = write!(
        page,
        "<h2>Machine and program</h2>\n<pre>{}</pre>\n</body>\n</html>\n",
        escape(&json)
    );
    page
}

fn section(page: &mut String, figure: &Figure, outcome: &Outcome, picture: Option<&str>) {
    let _ = write!(
        page,
        "<h2 id=\"{}\">{}, {}: {}</h2>\n<p>Published: {}</p>\n<p>{} {}</p>\n",
        escape(&figure.id),
        escape(figure.work()),
        escape(&figure.item),
        escape(&figure.title),
        escape(&figure.published),
        tag(outcome.verdict),
        escape(&outcome.reason)
    );
    if let Some(setting) = &figure.setting {
        let _ = writeln!(page, "<p>Setting here: {}</p>", escape(setting));
    }
    page.push_str("<table><tr><th>claim</th><th>verdict</th><th>because</th></tr>\n");
    for claim in &outcome.claims {
        let says = claim.says.as_ref().map(|says| format!("<br>{}", escape(says)));
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&claim.holds),
            says.unwrap_or_default(),
            tag(claim.verdict),
            escape(&claim.reason)
        );
    }
    page.push_str("</table>\n");
    let Some(picture) = picture else { return };
    let _ = writeln!(page, "<div>{picture}</div>\n<details><summary>numbers</summary>");
    let _ = writeln!(
        page,
        "<table><tr><th>series</th><th>{}</th><th>{}: median of {}</th><th>95 % interval</th></tr>",
        escape(&figure.x.label),
        escape(&figure.y),
        outcome.repetitions
    );
    for (name, point) in outcome.points.iter().flat_map(|(n, all)| all.iter().map(move |p| (n, p)))
    {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{} to {}</td></tr>",
            escape(name),
            escape(&point.x.to_string()),
            shown(point.median),
            shown(point.low),
            shown(point.high)
        );
    }
    page.push_str("</table>\n");
    if let Some(runs) = &figure.runs {
        let args = if runs.args.is_empty() { String::new() } else { format!(" {}", runs.args) };
        for series in &figure.series {
            let command = escape(&format!("{}{args}", series.command));
            let _ =
                writeln!(page, "<p>{}: <code>tercio {command}</code></p>", escape(&series.name));
        }
    }
    page.push_str("</details>\n");
}

/// The table, in Markdown: a row for each figure.
#[must_use]
pub fn markdown(all: &[(&Figure, &Outcome)]) -> String {
    let mut table = format!(
        "{}\n\n| item | shows | verdict | because |\n|---|---|---|---|\n",
        counts(all.iter().map(|(_, outcome)| *outcome))
    );
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    for (figure, outcome) in all {
        let _ = writeln!(
            table,
            "| {}, {} | {} | {} | {} |",
            figure.work(),
            cell(&figure.item),
            cell(&figure.title),
            outcome.verdict,
            cell(&outcome.reason)
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use serde_json::json;

    #[test]
    fn the_page_needs_nothing_beside_it_and_escapes_what_it_shows() {
        let text = "seed = \"001\"\nitem = \"Figure <1>\"\ntitle = \"a & b | c\"\npublished = \"p\"\n\
                    waits = \"<script>\"\n[[claim]]\nholds = 'max(\"s\") >= 1'\nsays = \"\\\"q\\\"\"\n";
        let figure = Figure::parse("001-x.toml", text).unwrap();
        let outcome = Outcome::untested(&figure, "waits for <script>");
        let environment = Environment {
            program: vec!["</pre>".into()],
            program_bytes: 1,
            program_written_s: 1,
            quick: true,
            machine: json!({}),
            calibration: json!({}),
        };
        let page = html(&[(&figure, &outcome, Some("<svg></svg>"))], &environment);
        for part in ["Figure &lt;1&gt;", "a &amp; b", "waits for &lt;script&gt;", "&quot;q&quot;"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains("1 NOT-TESTABLE-HERE") && page.contains("<svg></svg>"));
        assert!(page.contains("A quick run") && page.contains("&lt;/pre&gt;"));
        for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        let table = markdown(&[(&figure, &outcome)]);
        let row =
            "| FISCO BCOS, Figure <1> | a & b \\| c | NOT-TESTABLE-HERE | waits for <script> |";
        assert!(table.contains(row), "{table}");
    }
}

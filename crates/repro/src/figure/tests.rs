use super::*;

const GOOD: &str = r#"
seed = "002"
item = "Figure 8"
title = "t"
published = "p"
[runs]
args = "--seconds 3"
quick_args = "--seconds 1"
cost_s = 7
quick_cost_s = 4.5
[x]
label = "replicas"
values = [4, 6]
quick = [6]
[y]
label = "requests/s"
[[series]]
name = "here"
command = "bench bft --replicas {x}"
value = "throughput_rps"
[[points]]
name = "there"
points = [[4, 1.5], ["six", 2]]
[[claim]]
holds = 'spread("here") <= 1.15'
tolerance_percent = 5
"#;

fn wrong(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Figure::parse("002-x.toml", &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_file_says_what_is_run() {
    let figure = Figure::parse("some/002-fig08.toml", GOOD).unwrap();
    assert_eq!((figure.id.as_str(), figure.claims.len()), ("002-fig08", 1));
    assert_eq!(figure.points[0].points[1], (X::Name("six".into()), 2.0));
    let runs = figure.runs.as_ref().unwrap();
    let quick = figure.series[0].arguments(runs, Effort::Quick, Some(&figure.x.values[1]));
    assert_eq!(quick.join(" "), "bench bft --replicas 6 --seconds 1 --json");
    assert_eq!(figure.places(Effort::Quick), [X::Number(6.0)]);
    assert_eq!((figure.repetitions(Effort::Full), figure.repetitions(Effort::Quick)), (5, 3));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (from, to, line, what) in [
        ("item =", "itme =", 3, "unknown field `itme`"),
        ("\ncost_s = 7", "\ncost = 7", 9, "unknown field `cost`"),
        ("name = \"here\"", "nome = \"here\"", 18, "unknown field `nome`"),
        ("tolerance_percent = 5", "tolerance = 5", 26, "unknown field `tolerance`"),
        ("tolerance_percent = 5", "tolerance_percent = -1", 26, "0 to 50"),
        ("<= 1.15", "<=", 25, "claim, column 18"),
        ("spread(\"here\")", "spraed(\"here\")", 25, "there is no function 'spraed'"),
        ("spread(\"here\")", "spread(\"her\")", 25, "names 'her'"),
        ("seed = \"002\"", "seed = \"005\"", 2, "seed must be"),
        ("quick = [6]", "quick = [7]", 2, "x.quick"),
        ("{x}", "4", 17, "write {x}"),
        ("quick_cost_s = 4.5", "quick_cost_s = -1", 6, "above 0"),
        ("item = \"Figure 8\"", "item = 8", 3, "invalid type"),
        ("title = \"t\"", "title = \"t", 4, "invalid basic string"),
        ("[runs]", "waits = \"later\"\n[runs]", 2, "neither runs nor series"),
    ] {
        let error = wrong(from, to);
        assert!(error.starts_with(&format!("002-x.toml, line {line}: ")), "{to}: {error}");
        assert!(error.contains(what), "{to}: {error}");
    }
}

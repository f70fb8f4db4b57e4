//! The model against recorded runs of the card; no tool is needed for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use tercio_rtl_cosim::trace::replay;

fn traces() -> BTreeMap<PathBuf, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn the_model_does_what_the_card_did() {
    let mut packets = 0;
    for (path, text) in traces() {
        packets += replay(&text).unwrap_or_else(|at| panic!("{}: {at}", path.display()));
    }
    assert!(packets > 500, "{packets} packets");
    println!("rtl: {packets} recorded packets replayed");
}

/// What is done to a line.
type Change = fn(&str) -> String;

/// Every recorded line counts: a trace with one word changed is not what the model does.
#[test]
fn a_changed_trace_is_noticed() {
    let (_, text) = traces().into_iter().find(|(path, _)| path.ends_with("hostile.trace")).unwrap();
    let changes: [(&str, Change); 5] = [
        ("packet stored", |line| line.replace("stored", "replay")),
        ("packet bad_mac", |line| line.replace("bad_mac", "stored")),
        ("slot", |line| line.replace(['a', 'b', 'c', 'd'], "0")),
        ("key 3", |line| line.replace('a', "b")),
        ("counters", |line| line.replace("=", "=1")),
    ];
    for (verb, change) in changes {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let at = lines.iter().rposition(|line| line.starts_with(verb)).unwrap();
        lines[at] = change(&lines[at]);
        let found = replay(&lines.join("\n")).unwrap_err();
        assert_eq!(found.line, at + 1, "{verb}: {found}");
    }
    // A slot that is not named is missed behind the run.
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().rposition(|line| line.starts_with("slot")).unwrap();
    lines.remove(at);
    assert!(replay(&lines.join("\n")).unwrap_err().what.contains("changed the slots"));
    // Nor is what is no trace.
    for bad in ["", "packet", "packet stored zz", "free 9999 1", "network 0 0 0", "set 1", "boo"] {
        assert!(replay(bad).is_err(), "{bad}");
    }
}

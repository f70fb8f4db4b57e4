//! Chain ids stay what they were: of files that an earlier version wrote, with the chain id that it
//! computed. A network whose chain id moves finds neither its log nor its peers.

use std::path::Path;
use tercio_genesis::{App, AppKind, Apps, Genesis, Kind, NoRules};
use tercio_registry::apps;

const CHAINS: [(&str, &str, &str); 5] = [
    (
        "counter",
        include_str!("chains/counter.toml"),
        "d23bcb3a8f287787420c4081cbdd0ce38bce30fe56bbb3c21925773ca14ef377",
    ),
    (
        "exchange",
        include_str!("chains/exchange.toml"),
        "dd8b49911b0560c3a4e703aa79f3e69602689943eaeb2fa4bfcc72d06018c777",
    ),
    (
        "exchange",
        include_str!("chains/exchange-sm.toml"),
        "e29e606b084cc37a665192ae567c1cbcd47c807e9e72818a177f45d8ae1d9170",
    ),
    (
        "kv",
        include_str!("chains/kv.toml"),
        "a80e585cebb619c309887b95ec6d61066dadbdba7130f507e6fec998349bceba",
    ),
    (
        "bank",
        include_str!("chains/bank.toml"),
        "261c0254bc6e565607a246769e2b4129e2f228cfeabb6133751505260852a50f",
    ),
];

fn read(text: &str, apps: &Apps) -> Result<Genesis, String> {
    Genesis::from_toml(text, Path::new("genesis.toml"), apps).map_err(|error| error.to_string())
}

#[test]
fn an_earlier_version_s_chain_ids_stay() {
    for (app, text, chain) in CHAINS {
        let genesis = read(text, &apps()).unwrap();
        assert_eq!((genesis.app.name(), genesis.chain().to_string().as_str()), (app, chain));
        assert_eq!(read(&genesis.to_toml(), &apps()).unwrap(), genesis);
    }
}

#[test]
fn an_application_that_this_program_lacks_is_named() {
    let (_, text, _) = CHAINS[3];
    let bank = Apps::new(&[Kind::of::<tercio_registry::BankKind>()]);
    let error = read(text, &bank).unwrap_err();
    assert!(error.starts_with("genesis.toml:11: "), "{error}");
    assert!(error.contains("no application 'kv' (it has [bank])"), "{error}");
    let error = read(&format!("kv = 3\n{}", text.replace("[kv]", "[bank]")), &apps()).unwrap_err();
    assert_eq!(error, "genesis.toml:1: kv: an application is a table: write [kv]");
    let both = text.replace("[kv]", "[bank]\n[kv]");
    let error = read(&both, &apps()).unwrap_err();
    assert!(error.contains("exactly one of [counter], [exchange], [kv], [bank]"), "{error}");
}

#[test]
fn rules_that_do_not_parse_are_named_with_their_line() {
    let (_, text, _) = CHAINS[1];
    let wrong = |from: &str, to: &str| read(&text.replace(from, to), &apps()).unwrap_err();
    let error = wrong("credit = \"1208925819614629174706176\"", "credit = \"much\"");
    assert_eq!(error, "genesis.toml:12: credit: expected a whole number between quotes");
    let error = wrong("max_fills = 1024", "max_fils = 1024");
    assert!(error.starts_with("genesis.toml:16: max_fils: unknown field `max_fils`"), "{error}");
    let error = wrong("max_fills = 1024", "max_fills = \"x\"");
    assert!(error.starts_with("genesis.toml:16: max_fills: invalid type"), "{error}");
}

/// An application whose author's code panics over its rules.
struct Bad;

impl AppKind for Bad {
    const NAME: &'static str = "bad";
    const OPERATION: &'static str = "x";
    const QUESTION: &'static str = "x";
    type Rules = NoRules;

    fn build(_: &NoRules, _: tercio_types::Suite) -> Box<dyn tercio_execution::Application> {
        panic!("no such market")
    }
}

#[test]
fn a_panic_in_build_is_an_error_that_names_the_application() {
    let app = App::new::<Bad>(NoRules {});
    let error = app.build(tercio_types::Suite::default()).err().unwrap().to_string();
    assert_eq!(error, "bad: panics when it is built: no such market");
}

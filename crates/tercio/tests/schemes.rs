//! Networks of each suite, and clients of each signature scheme.

use crate::common;

use common::{Up, tercio, text};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tercio_client::{Client, ClientAuth, Settings};
use tercio_crypto::SigningSecret;
use tercio_genesis::ClientHome;
use tercio_network::poll_until;
use tercio_types::{RequestSeq, Scheme};

fn submit(dir: &Path, client: &str, op: &str) -> common::Run {
    tercio(["submit", text(dir), "--client", client, "--json", op])
}

/// SM2 identities and messages, SM3 blocks and states. One replica does without vector arithmetic,
/// as it would on a processor that has none, and agrees with the others.
#[test]
fn a_network_of_sm3_and_sm2_orders_answers_and_is_audited() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let made = tercio(["testnet", "--crypto", "sm", "-n", "4", "-o", text(&dir), "--json"]);
    assert_eq!(made.good().json()["suite"], "sm3-sm2");
    let settings = dir.join("replica-1/tercio.toml");
    let with = fs::read_to_string(&settings).unwrap() + "\n[verify]\nsm2 = \"scalar\"\n";
    fs::write(&settings, with).unwrap();
    let up = Up::start(&dir);
    for expected in 1..=3 {
        assert_eq!(submit(&dir, "1", "add").good().json()["result"], expected);
    }
    let total = tercio(["query", text(&dir), "total", "--json"]).good().json();
    assert_eq!(total["answer"], 3);
    // Which arithmetic checks SM2 is said, so that nobody wonders about a slow machine.
    let best = tercio_crypto::sm2::Backend::best().name();
    let status = tercio(["status", text(&dir)]);
    for (i, report) in up.reports(4).iter().enumerate() {
        let backend = if i == 1 { "scalar" } else { best };
        assert_eq!(report.sm2_backend.as_deref(), Some(backend));
        let start = format!("replica {i} ");
        let line = status.good().stdout.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(line.contains(&format!("sm2: {backend}")), "{line}");
        let log = fs::read_to_string(dir.join(format!("replica-{i}/stderr.log"))).unwrap();
        assert!(log.contains(&format!("({backend})")), "{log}");
    }
    let counted = || up.reports(4).iter().all(|r| r.signatures >= r.signature_batches.max(1));
    let seen = poll_until(Duration::from_secs(60), || counted().then_some(()));
    assert!(seen.is_some(), "signatures are counted: {:?}", up.reports(4));
    up.stop();
    let audit = tercio(["audit", text(&dir)]);
    assert_eq!(audit.good().stdout.matches("audit: ok, replica").count(), 4, "{}", audit.stdout);
    for i in 0..4 {
        let home = dir.join(format!("replica-{i}"));
        let audit = tercio(["audit", text(&home), "--json"]).good().json();
        assert_eq!(audit["audit"], "ok");
        assert!(audit["height"].as_u64().unwrap() >= 3, "{audit}");
    }
}

/// One network, and a client of each scheme; whoever signs with another key is refused.
#[test]
fn clients_of_every_scheme_share_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir), "--clients", "1"]).good();
    for scheme in Scheme::ALL {
        let name = scheme.name();
        tercio(["client", "add", text(&dir), "--name", name, "--signing", name]).good();
    }
    let up = Up::start(&dir);
    for (scheme, expected) in Scheme::ALL.iter().zip(1..) {
        let json = submit(&dir, scheme.name(), "add").good().json();
        assert_eq!(json["result"], expected, "{scheme:?}");
    }
    assert!(up.reports(4).iter().all(|report| report.sm2_backend.is_some()));

    // The program sees by itself that a key is not the one of the genesis, or no key.
    for scheme in Scheme::ALL {
        let home = dir.join("clients").join(scheme.name());
        let file = home.join("signing.pem");
        let own = fs::read(&file).unwrap();
        let other = SigningSecret::generate(scheme).unwrap();
        fs::write(&file, other.to_pem().unwrap().as_bytes()).unwrap();
        let refused = submit(&dir, scheme.name(), "add");
        refused.refused(1, &["signing.pem", "not the key that the genesis has"]);
        fs::write(&file, "-----BEGIN PRIVATE KEY-----\n").unwrap();
        submit(&dir, scheme.name(), "add").refused(1, &["signing.pem", "PEM"]);
        fs::write(&file, own).unwrap();

        // A client that does not look is not believed by the replicas, which count why.
        let bad = || -> u64 {
            let reports = up.reports(4);
            reports.iter().filter_map(|report| report.dropped.get("bad_signature")).sum()
        };
        let before = bad();
        let home = ClientHome::load(&home, &tercio_registry::apps()).unwrap();
        let membership = home.genesis.membership().unwrap();
        let mut settings = Settings::new(home.client, home.secret, membership);
        settings.core.auth = ClientAuth::Signature;
        settings.core.signing = Some(Arc::new(other));
        settings.core.first = Some(RequestSeq(2));
        let mut client = Client::connect(settings).unwrap();
        client.submit(vec![home.genesis.app.operation("add").unwrap()]).unwrap();
        // It sends as long as it is polled, and not by itself.
        let counted = poll_until(Duration::from_secs(60), || {
            client.poll(Duration::from_millis(1));
            (bad() > before).then_some(())
        });
        assert!(counted.is_some(), "{scheme:?}: a wrong signature was not counted");
    }
    let total = tercio(["query", text(&dir), "total", "--json"]).good().json();
    assert_eq!(total["answer"], Scheme::ALL.len(), "nothing else was executed");
    up.stop();
    tercio(["audit", text(&dir.join("replica-2"))]).good();
}

#[test]
fn bench_auth_has_a_row_for_each_package() {
    let run = tercio([
        "bench",
        "auth",
        "--packages",
        "1,10",
        "--auth",
        "sm2",
        "--seconds",
        "1",
        "--json",
    ]);
    let json = run.good().json();
    let rows = json["rows"].as_array().unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| row["package"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 10]);
    for row in rows {
        assert_eq!(row["auth"], "sm2");
        for field in ["throughput_rps", "cpu_us_per_request_primary", "cpu_us_per_request_backup"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{row}");
        }
        let number = |field: &str| row[field].as_f64().unwrap();
        // Both are rounded to a thousandth: a share of what a slow machine does.
        let (requests, package) = (number("throughput_rps"), number("package"));
        let difference = (requests - number("packages_per_s") * package).abs();
        assert!(difference <= 0.001 * (1.0 + package), "{row}");
        assert!(run.stderr.contains("sm2"), "progress is said: {}", run.stderr);
    }
    assert_eq!(json["published"].as_array().unwrap().len(), 1, "{json}");
    tercio(["bench", "auth", "--packages", "0"]).refused(2, &["--packages"]);
    tercio(["bench", "auth", "--auth", "mac,trust"]).refused(2, &["--auth", "trust"]);
}

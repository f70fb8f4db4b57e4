//! Remote memory as a user sees it: a store served, used and measured from the command line.

use crate::common;

use common::{Run, kill, tercio, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// `tercio prism serve` while it runs, at one endpoint of each kind.
struct Serving {
    child: Child,
    said: BufReader<ChildStdout>,
    folder: TempDir,
    endpoints: Vec<String>,
}

impl Serving {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tercio"))
            .args(["prism", "serve", "--json", "--items", "5000"])
            .args(["--udp", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--shm"])
            .arg(folder.path().join("socket"))
            .arg("--key-file")
            .arg(folder.path().join("key"))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let serving = Self::object(&mut said);
        let endpoints = serving["endpoints"].as_array().unwrap();
        let endpoints = endpoints.iter().map(|e| e.as_str().unwrap().to_owned()).collect();
        Self { child, said, folder, endpoints }
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn kv(&self, endpoint: &str, args: &[&str]) -> Run {
        let key = self.key();
        tercio(["prism", "kv", "--at", endpoint, "--key-file", text(&key)].iter().chain(args))
    }

    /// The next JSON object that it prints.
    fn object(said: &mut BufReader<ChildStdout>) -> Value {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Ends it as an operator would. It says where the buffers are.
    fn stop(mut self) {
        assert!(kill("-TERM", self.child.id()));
        let ended = Self::object(&mut self.said);
        assert!(ended["requests"].is_u64(), "{ended}");
        assert!(conserved(&ended["buffers"][0]) > 0, "{ended}");
        assert!(self.child.wait().unwrap().success());
        assert!(!self.folder.path().join("socket").exists(), "it leaves no socket behind");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Harmless when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many buffers were posted: as many as are free, live or in flight.
fn conserved(buffers: &Value) -> u64 {
    let [posted, free, live, in_flight] =
        ["posted", "free", "live", "in_flight"].map(|place| buffers[place].as_u64().unwrap());
    assert_eq!(posted, free + live + in_flight, "{buffers}");
    posted
}

#[test]
fn a_server_says_where_its_buffers_are() {
    let serving = Serving::start();
    for key in ["one", "two", "three"] {
        serving.kv(&serving.endpoints[1], &["put", key, "value"]).good();
    }
    let key = serving.key();
    for endpoint in &serving.endpoints {
        let count = ["prism", "count", "--at", endpoint, "--key-file", text(&key)];
        let buffers = tercio(count.iter().chain(&["--json"])).good().json();
        conserved(&buffers);
        assert_eq!((&buffers["live"], &buffers["in_flight"]), (&3.into(), &0.into()));
        let run = tercio(count.iter());
        let words = &run.good().stdout;
        assert!(words.contains(" posted = ") && words.contains(" 3 live"), "{words}");
    }
    serving.stop();
}

#[test]
fn a_served_store_is_used_over_each_transport() {
    let serving = Serving::start();
    let mode = fs::metadata(serving.key()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner reads the capability");
    let kinds: Vec<_> = serving.endpoints.iter().map(|e| e.split(':').next().unwrap()).collect();
    assert_eq!(kinds, ["shm", "udp", "tcp"]);
    for endpoint in &serving.endpoints {
        let kv = |args: &[&str]| serving.kv(endpoint, args);
        kv(&["get", "greeting"]).refused(1, &["there is no key 'greeting'"]);
        assert_eq!(kv(&["--json", "get", "greeting"]).good().json()["found"], false);
        kv(&["put", "greeting", "hello"]).good();
        kv(&["put", "greeting", "hello again"]).good();
        assert_eq!(kv(&["get", "greeting"]).good().stdout, "hello again\n");
        let read = kv(&["--json", "get", "greeting"]).good().json();
        assert_eq!((&read["value"], &read["found"]), (&"hello again".into(), &true.into()));
        // The others see it, too.
        for other in &serving.endpoints {
            assert_eq!(serving.kv(other, &["get", "greeting"]).good().stdout, "hello again\n");
        }
        kv(&["delete", "greeting"]).good();
        kv(&["delete", "greeting"]).refused(1, &["there is no key"]);
        let long = "x".repeat(20_000);
        kv(&["put", "long", &long]).refused(1, &["value is longer"]);
        kv(&["put", "", "value"]).refused(1, &["key is empty"]);
    }
    serving.stop();
}

/// How many of a load's requests were run without the server.
fn without_server(serving: &Serving, endpoint: &str, more: &[&str]) -> u64 {
    let key = serving.key();
    let load = ["prism", "bench", "--at", endpoint, "--key-file", text(&key), "--json"];
    let size = ["--keys", "50", "--seconds", "0.2"];
    let report = tercio(load.iter().chain(&size).chain(more)).good().json();
    report["without_server"].as_u64().unwrap()
}

#[test]
fn a_store_is_read_without_its_server_where_both_agree() {
    let serving = Serving::start();
    let [shm, udp, _] = &serving.endpoints[..] else { panic!("three endpoints") };
    serving.kv(udp, &["put", "greeting", "hello"]).good();
    assert_eq!(serving.kv(shm, &["get", "greeting"]).good().stdout, "hello\n");
    for words in [["--json", "get", "greeting"], ["get", "greeting", "--json"]] {
        assert_eq!(serving.kv(shm, &words).good().json()["value"], "hello", "{words:?}");
    }
    assert_eq!(serving.kv(shm, &["--no-direct", "get", "greeting"]).good().stdout, "hello\n");
    assert!(without_server(&serving, shm, &[]) > 100);
    assert_eq!(without_server(&serving, shm, &["--no-direct"]), 0);
    assert_eq!(without_server(&serving, udp, &[]), 0);
    serving.stop();
    for closed in [&["--no-direct"][..], &["--delay-us", "3"]] {
        let serving = Serving::with(closed);
        assert_eq!(without_server(&serving, &serving.endpoints[0], &[]), 0, "{closed:?}");
        serving.stop();
    }
}

#[test]
fn a_load_on_a_served_store_is_reported() {
    let serving = Serving::start();
    let key = serving.key();
    for (endpoint, workload) in serving.endpoints.iter().zip(["a", "c", "f"]) {
        // More keys than the table first has slots for half of: it grows on the way.
        let run = tercio([
            "prism",
            "bench",
            "--at",
            endpoint,
            "--key-file",
            text(&key),
            "--workload",
            workload,
            "--keys",
            "1500",
            "--value",
            "100",
            "--seconds",
            "0.1",
            "--zipf",
            "0.99",
            "--json",
        ]);
        let report = run.good().json();
        assert!(report["rate_per_s"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report["p50_us"].as_f64().unwrap() > 0.0, "{report}");
        assert_eq!(report["workload"], workload.to_uppercase());
        assert_eq!(report["keys"], 1500);
    }
    tercio(["prism", "bench", "--window", "0"]).refused(2, &["--window", "write 1 to 60"]);
    serving.stop();
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let serving = Serving::start();
    let folder = serving.folder.path();
    let at = serving.endpoints[1].as_str();
    let get = |at: &str, key: &Path| {
        tercio(["prism", "kv", "--at", at, "--key-file", text(key), "get", "x"])
    };
    get("mail:somewhere", &serving.key()).refused(2, &["shm:PATH", "udp:ADDRESS"]);
    get("udp:nowhere", &serving.key()).refused(2, &["no address"]);
    get(at, &folder.join("missing")).refused(1, &["missing"]);

    let other = folder.join("other");
    fs::write(&other, "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    get(at, &other).refused(1, &["chmod 600"]);
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    for endpoint in &serving.endpoints {
        get(endpoint, &other).refused(1, &["capability"]);
    }
    fs::write(&other, "a secret\n").unwrap();
    get(at, &other).refused(1, &["32 hexadecimal digits"]);

    let nobody = folder.join("nobody").display().to_string();
    get(&format!("shm:{nobody}"), &serving.key()).refused(1, &["is 'tercio prism serve' running"]);
    // A port of ours that nobody serves.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = format!("udp:{}", socket.local_addr().unwrap());
    get(&silent, &serving.key()).refused(1, &["does not answer"]);

    let taken = folder.join("socket");
    let key = serving.key();
    tercio(["prism", "serve", "--shm", text(&taken), "--key-file", text(&key)])
        .refused(1, &["another server"]);
    let port = at.strip_prefix("udp:").unwrap();
    tercio(["prism", "serve", "--udp", port, "--key-file", text(&key)]).refused(1, &["in use"]);
    tercio(["prism", "serve", "--delay-us", "1e9"]).refused(2, &["--delay-us"]);

    get("verbs:any", &serving.key()).refused(1, &["RDMA"]);
    tercio(["bench", "prism", "ops", "--transport", "verbs"]).refused(1, &["RDMA"]);
    tercio(["bench", "prism", "ops", "--transport", "pigeon"]).refused(2, &["pigeon"]);
    tercio(["bench", "prism", "ops", "--op", "fly"]).refused(2, &["fly"]);
    tercio(["bench", "prism", "fig1", "--value", "63"]).refused(2, &["--value"]);
    serving.stop();
}

/// A figure on so few objects that it is done at once; with its report.
fn figure(name: &str, more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let args = ["bench", "prism", name, "--short", "--objects", "2000", "--json", "--out"];
    let run = tercio(args.iter().copied().chain([text(&out)]).chain(more.iter().copied()));
    let report = run.good().json();
    for file in report["files"].as_array().unwrap() {
        let written = fs::read_to_string(file.as_str().unwrap()).unwrap();
        assert!(written.lines().count() > 1, "{file} is empty");
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(report["machine"]["cores"], cores, "the machine's, not what one process keeps to");
    report
}

fn positive(report: &Value, list: &str, fields: &[&str]) -> usize {
    let list = report[list].as_array().unwrap();
    for entry in list {
        for field in fields {
            assert!(entry[field].as_f64().unwrap() > 0.0, "{field} in {entry}");
        }
    }
    list.len()
}

#[test]
fn the_papers_figures_are_measured() {
    let fields = ["p50_us", "p99_us", "rate_per_s", "random_read_fraction"];
    let ops = figure("ops", &[]);
    assert_eq!(positive(&ops, "ops", &fields), 5 * 9);
    for op in ops["ops"].as_array().unwrap() {
        let of = |field: &str| op[field].as_f64();
        if op["transport"] == "shm" {
            assert!(of("floor_us").unwrap() > 0.0 && of("memory_us").unwrap() > 0.0, "{op}");
            let (of_floor, ratio) = (of("of_floor").unwrap(), &op["floor_ratio"]);
            let between = |min: &str, max: &str| {
                ratio[min].as_f64().unwrap() <= of_floor && of_floor <= ratio[max].as_f64().unwrap()
            };
            assert!(of_floor > 0.0 && between("min", "max"), "{op}");
            assert_eq!(ratio["pairs"], 3, "{op}");
        } else {
            let absent = |field: &str| op[field].is_null();
            assert!(["floor_us", "memory_us", "of_floor"].into_iter().all(absent), "{op}");
        }
    }
    assert_eq!(positive(&figure("fig1", &[]), "ops", &fields), 2 * 5);
    let distances = figure("fig2", &[]);
    assert_eq!(positive(&distances, "points", &["ratio"]), 2 * 4);
    for point in distances["points"].as_array().unwrap() {
        // What is added to each round trip is really added.
        let added = point["distance_us"].as_f64().unwrap();
        let median = |what: &str| point[what]["p50_us"].as_f64().unwrap();
        assert!(median("indirect_read") >= added && median("two_reads") >= 2.0 * added, "{point}");
    }
    for (name, systems) in [("fig3", 1), ("fig4", 2)] {
        let report = figure(name, &[]);
        assert_eq!(positive(&report, "comparisons", &[]), 3 * systems);
        assert!(positive(&report, "points", &["p50_us", "mean_us", "rate_per_s"]) > 3 * systems);
    }
}

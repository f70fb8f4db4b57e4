//! Lets Verilator translate `rtl/` and compiles what it makes, when the feature asks for it.

fn main() {
    #[cfg(feature = "verilator")]
    verilated::build();
}

#[cfg(feature = "verilator")]
mod verilated {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Runs Verilator and gives what it printed.
    fn verilator(arguments: &[String]) -> String {
        let run = Command::new("verilator").args(arguments).output();
        let run = run.unwrap_or_else(|error| {
            panic!("verilator does not run ({error}): install it (apt-get install verilator)")
        });
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "verilator failed:\n{said}");
        String::from_utf8_lossy(&run.stdout).trim().to_owned()
    }

    fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
        let list = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let paths = list.map(|entry| entry.expect("a folder can be read").path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
        paths.sort();
        paths
    }

    fn text(path: &Path) -> String {
        path.to_str().expect("paths here are UTF-8").to_owned()
    }

    pub(super) fn build() {
        let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl");
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
        let made = out.join("verilated");
        // What an older design left must not be compiled with the new one.
        if made.exists() {
            std::fs::remove_dir_all(&made).expect("our own output can be removed");
        }
        // The package comes before what uses it.
        let package = rtl.join("src/nic_pkg.sv");
        let modules = files(&rtl.join("src"), "sv").into_iter().filter(|path| *path != package);
        let sources: Vec<_> = [package.clone()]
            .into_iter()
            .chain(modules)
            .chain(files(&rtl.join("sim"), "sv"))
            .collect();
        let words = ["--cc", "-O3", "--top-module", "bench", "--prefix", "Bench", "--Mdir"];
        let words = words.into_iter().map(str::to_owned).chain([text(&made)]);
        let zoo = cfg!(feature = "zoo").then(|| "-DTERCIO_ZOO".to_owned());
        let fast = ["-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast"].map(str::to_owned);
        let sources_text = sources.iter().map(|path| text(path));
        verilator(&words.chain(zoo).chain(fast).chain(sources_text).collect::<Vec<_>>());

        let runtime =
            PathBuf::from(verilator(&["--getenv".to_owned(), "VERILATOR_ROOT".to_owned()]))
                .join("include");
        let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shim.cpp");
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .opt_level(2)
            .debug(false)
            .warnings(false)
            .include(&made)
            .include(&runtime)
            .include(runtime.join("vltstd"))
            .files(files(&made, "cpp"))
            .files(["verilated.cpp", "verilated_threads.cpp"].map(|name| runtime.join(name)))
            .file(&shim)
            .compile("tercio_bench");
        for path in sources.iter().chain([&shim]) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

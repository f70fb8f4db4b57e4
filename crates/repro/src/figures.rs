//! Where figures are: those that come along, and those of a folder.

use crate::figure::{Figure, FigureError};
use std::fs;
use std::path::Path;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../figures/", $name)))),*]
    };
}

/// Every file of `figures`, in this order.
const FILES: &[(&str, &str)] = files! {
    "000-fig04.toml"
    "000-fig15.toml"
    "000-fig16.toml"
    "000-fig17.toml"
    "000-fig18.toml"
    "000-fig19.toml"
    "000-fig20.toml"
    "000-messages.toml"
    "001-before-after.toml"
    "001-decay.toml"
    "001-overall.toml"
    "001-pte-cores.toml"
    "001-pte-native.toml"
    "001-pte-solidity.toml"
    "001-roots.toml"
    "001-stage-times.toml"
    "001-sync.toml"
    "001-verify-once.toml"
    "001-whole-chain.toml"
    "002-fig08.toml"
    "002-fig09.toml"
    "002-fig10.toml"
    "002-fig11.toml"
    "002-fig12.toml"
    "002-fig13.toml"
    "002-orders.toml"
    "002-tab01.toml"
    "002-tab05.toml"
    "002-tab06.toml"
    "002-tab07.toml"
    "002-tab08.toml"
    "002-tab09.toml"
    "002-tab10.toml"
    "002-tab11.toml"
    "002-tab12.toml"
    "002-tab13.toml"
    "003-fig01.toml"
    "003-fig02.toml"
    "003-fig03.toml"
    "003-fig04.toml"
    "003-fig06.toml"
    "003-fig07.toml"
    "003-fig09.toml"
    "003-fig10.toml"
    "004-authentication.toml"
    "004-latency.toml"
    "004-memory.toml"
    "004-throughput.toml"
};

/// The figures of the five publications that this project is built on.
///
/// # Errors
/// When a file is not that of a figure; a test holds that none is.
pub fn built_in() -> Result<Vec<Figure>, FigureError> {
    let path = |name: &str| format!("crates/repro/figures/{name}");
    FILES.iter().map(|(name, text)| Figure::parse(&path(name), text)).collect()
}

/// The figures whose files are in a folder, in the order of their names.
///
/// # Errors
/// When the folder or a file cannot be read, a file is not that of a figure, or there is none.
pub fn from_dir(dir: &Path) -> Result<Vec<Figure>, FigureError> {
    let fail = |path: &Path, error| FigureError::Read { path: path.to_owned(), error };
    let mut paths = vec![];
    for entry in fs::read_dir(dir).map_err(|error| fail(dir, error))? {
        let path = entry.map_err(|error| fail(dir, error))?.path();
        paths.extend(path.extension().is_some_and(|end| end == "toml").then_some(path));
    }
    paths.sort();
    if paths.is_empty() {
        return Err(FigureError::Empty { path: dir.to_owned() });
    }
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).map_err(|error| fail(path, error))?;
        Figure::parse(&path.to_string_lossy(), &text)
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Effort;
    use crate::runner::cost_s;
    use std::collections::BTreeSet;

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("figures")
    }

    #[test]
    fn every_file_comes_along_and_is_a_figure() {
        let names = |figures: &[Figure]| {
            figures.iter().map(|figure| figure.id.clone()).collect::<BTreeSet<_>>()
        };
        let (built_in, found) = (built_in().unwrap(), from_dir(&folder()).unwrap());
        assert_eq!(names(&built_in), names(&found));
        assert_eq!(built_in.len(), names(&built_in).len());
    }

    /// Each table, figure and other value that `published-values` has of the five publications.
    #[test]
    fn every_published_item_is_there() {
        let figures = built_in().unwrap();
        let of = |seed: &str| figures.iter().filter(|figure| figure.seed == seed).count();
        assert_eq!(["000", "001", "002", "003", "004"].map(of), [8, 11, 17, 8, 4]);
        for figure in &figures {
            assert!(!figure.claims.is_empty(), "{} claims nothing", figure.id);
            assert!(!figure.published.is_empty() && !figure.title.is_empty(), "{}", figure.id);
        }
    }

    #[test]
    fn all_figures_take_ten_minutes_or_ninety() {
        let figures = built_in().unwrap();
        let minutes = |effort| cost_s(&figures, effort) / 60.0;
        assert!(minutes(Effort::Quick) <= 8.5, "quick: {} min", minutes(Effort::Quick));
        assert!(minutes(Effort::Full) <= 80.0, "full: {} min", minutes(Effort::Full));
    }

    #[test]
    fn a_folder_without_figures_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let empty = from_dir(dir.path()).unwrap_err().to_string();
        assert!(empty.ends_with("no figure (*.toml) is there"), "{empty}");
        let none = from_dir(&dir.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("none: "), "{none}");
        fs::write(dir.path().join("000-x.toml"), "seed = 1\n").unwrap();
        let wrong = from_dir(dir.path()).unwrap_err().to_string();
        assert!(wrong.contains("000-x.toml, line 1: "), "{wrong}");
    }
}

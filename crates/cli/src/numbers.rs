//! Numbers on the command line: each has a range, and one outside is refused by its option's name.

use std::fmt::Display;
use std::str::FromStr;

/// Reads a number from `least` to `most`.
pub(crate) fn between<T>(
    least: T,
    most: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("write {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use crate::Cli;
    use clap::builder::ValueParser;
    use clap::{Arg, Command, CommandFactory};
    use std::any::TypeId;
    use std::collections::BTreeMap;

    /// Every option and argument that takes a number, by the command that it belongs to: what it may
    /// be, and what is beside it where the command line needs more.
    const NUMBERS: &[(&str, &str, f64, f64)] = &[
        ("testnet", "replicas", 1.0, 128.0),
        ("testnet", "clients", 1.0, 1024.0),
        ("rebuild", "view", 0.0, 1e18),
        ("submit", "ask", 1.0, 9.2e18),
        ("init", "added_as", 1.0, 9.2e18),
        ("audit", "results", 1.0, 9.2e18),
        ("bench bft", "replicas", 4.0, 31.0),
        ("bench bft", "size", 0.0, 65_536.0),
        ("bench bft", "reply", 0.0, 65_536.0),
        ("bench bft", "package", 1.0, 1024.0),
        ("bench bft", "verify_threads", 0.0, 64.0),
        ("bench bft", "batch_ops", 1.0, 65_536.0),
        ("bench bft", "batch_time_us", 0.0, 1e6),
        ("bench bft", "iterations", 0.0, 1e7),
        ("bench bft", "pipeline", 1.0, 512.0),
        ("bench bft", "clients", 1.0, 256.0),
        ("bench bft", "outstanding", 1.0, 1024.0),
        ("bench bft", "rate", 1.0, 1e7),
        ("bench bft", "seconds", 1.0, 3600.0),
        ("bench bft", "trials", 1.0, 100.0),
        #[cfg(feature = "stock")]
        ("demo", "count", 1.0, 1e9),
        #[cfg(feature = "stock")]
        ("demo", "replicas", 4.0, 31.0),
        #[cfg(feature = "stock")]
        ("prism serve", "items", 1.0, 4_294_967_295.0),
        #[cfg(feature = "stock")]
        ("prism serve", "delay_us", 0.0, 1e6),
        #[cfg(feature = "stock")]
        ("prism serve", "measure", 1.0, 16_777_216.0),
        #[cfg(feature = "stock")]
        ("prism serve", "value", 1.0, 12_288.0),
        #[cfg(feature = "stock")]
        ("prism bench", "zipf", 0.0, 10.0),
        #[cfg(feature = "stock")]
        ("prism bench", "keys", 1.0, 4_294_967_295.0),
        #[cfg(feature = "stock")]
        ("prism bench", "value", 1.0, 12_288.0),
        #[cfg(feature = "stock")]
        ("prism bench", "window", 1.0, 60.0),
        #[cfg(feature = "stock")]
        ("prism bench", "seconds", 0.001, 86_400.0),
        #[cfg(feature = "stock")]
        ("prism rs serve", "member", 0.0, 6.0),
        #[cfg(feature = "stock")]
        ("prism rs serve", "members", 1.0, 7.0),
        #[cfg(feature = "stock")]
        ("prism rs serve", "blocks", 1.0, 4_294_967_295.0),
        #[cfg(feature = "stock")]
        ("prism rs serve", "block_bytes", 1.0, 1_048_576.0),
        #[cfg(feature = "stock")]
        ("prism tx serve", "shard", 0.0, 1023.0),
        #[cfg(feature = "stock")]
        ("prism tx serve", "shards", 1.0, 1024.0),
        #[cfg(feature = "stock")]
        ("prism tx serve", "keys", 1.0, 4_294_967_295.0),
        #[cfg(feature = "stock")]
        ("prism tx serve", "value_bytes", 8.0, 1_048_576.0),
    ];

    fn is_number(parser: &ValueParser) -> bool {
        let numbers = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<i64>(),
            TypeId::of::<f64>(),
        ];
        numbers.iter().any(|number| parser.type_id() == *number)
    }

    /// The arguments that take numbers, by the names of their commands.
    fn numbers(command: &Command, path: &str, all: &mut BTreeMap<(String, String), Arg>) {
        for arg in command.get_arguments().filter(|arg| is_number(arg.get_value_parser())) {
            all.insert((path.to_owned(), arg.get_id().to_string()), arg.clone());
        }
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name());
            numbers(sub, path.trim(), all);
        }
    }

    /// Whether an option that is read as this one is takes a text, and what is said otherwise.
    fn takes(arg: &Arg, text: &str) -> Result<(), String> {
        let alone = Arg::new("number").long("number");
        let command = Command::new("x").arg(alone.value_parser(arg.get_value_parser().clone()));
        let read = command.try_get_matches_from(["x", &format!("--number={text}")]);
        read.map(drop).map_err(|error| error.to_string())
    }

    /// Each takes the ends of its range, and refuses what lies beyond, by its name. A number that is
    /// not in the table fails, too: who adds one says what it may be.
    #[test]
    fn every_number_of_the_command_line_has_a_range() {
        let mut found = BTreeMap::new();
        numbers(&Cli::command(), "", &mut found);
        // Those of measurements that mean the same as of the first, and names of keys and blocks, which
        // servers look up.
        found.retain(|(path, _), _| {
            let measured = path.starts_with("bench") && path != "bench bft";
            let names =
                path.starts_with("prism") && !path.ends_with("serve") && path != "prism bench";
            !measured && !names
        });
        for (path, id, least, most) in NUMBERS {
            let name = format!("{path} {id}");
            let arg = found.remove(&((*path).to_owned(), (*id).to_owned()));
            let arg = arg.unwrap_or_else(|| panic!("there is no {name}"));
            for good in [least.to_string(), most.to_string()] {
                assert_eq!(takes(&arg, &good), Ok(()), "{name} {good}");
            }
            let mut bads = vec!["-1".to_owned(), "nan".into(), "inf".into(), "1e400".into()];
            bads.extend(["99999999999999999999999".into(), String::new(), "0x10".into()]);
            bads.extend((*least >= 1.0).then(|| "0".to_owned()));
            bads.extend((*most < 1e18).then(|| (most + 1.0).to_string()));
            for bad in bads {
                let error = takes(&arg, &bad).expect_err(&format!("{name} = {bad}"));
                assert!(error.contains("--number"), "{error}");
            }
        }
        let rest: Vec<_> = found.into_keys().collect();
        assert!(rest.is_empty(), "say what these may be: {rest:?}");
    }
}

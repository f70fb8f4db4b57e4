//! A matcher from `docs/exchange.md` alone: one list of orders in the order of their arrival,
//! scanned for everything. It shares no code with the exchange.

use std::fmt::Write;

struct Order {
    id: u64,
    bid: bool,
    cents: u64,
    left: u64,
}

/// What a replay of a file must come to.
pub(crate) struct Replay {
    pub(crate) events: u64,
    pub(crate) unknown: u64,
    pub(crate) trades: String,
    pub(crate) book: String,
}

fn dollars(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

pub(crate) fn replay(csv: &str) -> Replay {
    let mut book: Vec<Order> = vec![];
    let mut trades = String::from("sequence,taker,maker,price,quantity,taker_side\n");
    let (mut events, mut unknown, mut trade) = (0, 0, 0);
    for row in csv.lines().skip(1) {
        let f: Vec<&str> = row.split(',').collect();
        let (id, volume) = (f[0].parse().unwrap(), f[4].parse::<u64>().unwrap());
        let (whole, part) = f[3].split_once('.').unwrap_or((f[3], "00"));
        let cents =
            whole.parse::<u64>().unwrap() * 100 + format!("{part:0<2}").parse::<u64>().unwrap();
        let bid = f[6] == "bid";
        events += 1;
        let place = book.iter().position(|o| o.id == id);
        match (f[5], place) {
            ("created", Some(_)) => panic!("the sample creates no order twice"),
            ("created", None) => {
                let mut left = volume;
                while left > 0 {
                    // The best price of the other side; min_by_key takes the first of equals,
                    // which is the oldest.
                    let crossing = book.iter_mut().filter(|o| {
                        o.bid != bid && if bid { o.cents <= cents } else { o.cents >= cents }
                    });
                    let best =
                        crossing.min_by_key(|o| if bid { o.cents } else { u64::MAX - o.cents });
                    let Some(maker) = best else { break };
                    let quantity = left.min(maker.left);
                    left -= quantity;
                    maker.left -= quantity;
                    trade += 1;
                    let price = dollars(maker.cents);
                    writeln!(trades, "{trade},{id},{},{price},{quantity},{}", maker.id, f[6])
                        .unwrap();
                    book.retain(|o| o.left > 0);
                }
                if left > 0 {
                    book.push(Order { id, bid, cents, left });
                }
            }
            ("changed", Some(i)) => {
                book[i].left = book[i].left.min(volume);
                book.retain(|o| o.left > 0);
            }
            ("deleted", Some(i)) => drop(book.remove(i)),
            (_, None) => unknown += 1,
            (action, _) => panic!("an action {action:?}"),
        }
    }
    let mut text = String::from("id,side,price,remaining\n");
    book.sort_by_key(|o| if o.bid { (0, u64::MAX - o.cents) } else { (1, o.cents) });
    for o in &book {
        let side = if o.bid { "bid" } else { "ask" };
        writeln!(text, "{},{side},{},{}", o.id, dollars(o.cents), o.left).unwrap();
    }
    Replay { events, unknown, trades, book: text }
}

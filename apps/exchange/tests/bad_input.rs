//! Every kind of bad input has a reason of its own, and no bytes make the exchange panic.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tercio_exchange::query::Query;
use tercio_exchange::replay::{self, CollectError};
use tercio_exchange::{
    Command, Exchange, Fill, Outcome, Reject, Settings, SettingsError, Side, SymbolSpec,
};
use tercio_execution::{Application, Context, Operation, Replies};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};
use tercio_wire::{DecodeError, Encode};

const ALICE: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);
const CAROL: ClientId = ClientId(3);
const OPERATOR: ClientId = ClientId(9);

fn exchange() -> Exchange {
    let mut settings = Settings::markets(2);
    settings.credit = 1000;
    settings.operator = Some(OPERATOR);
    settings.max_accounts = 2;
    settings.max_open_orders = 3;
    settings.max_book_orders = 5;
    settings.max_fills = 2;
    Exchange::new(settings, Suite::default()).unwrap()
}

fn limit(symbol: u16, id: u64, side: Side, price: i64, quantity: i64) -> Command {
    Command::Limit { symbol, id, side, price, quantity }
}

#[test]
fn every_reason_is_given_for_its_own_mistake() {
    use Reject::*;
    use Side::*;
    let mut e = exchange();
    for id in 1..=3 {
        let outcome = e.apply(ALICE, &limit(0, id, Bid, 10, 1));
        assert_eq!(outcome, Outcome::Placed { remaining: 1, dropped: 0, fills: vec![] });
    }
    for id in 4..=5 {
        e.apply(BOB, &limit(0, id, Bid, 9, 1));
    }
    let deposit = |asset, amount| Command::Deposit { account: 2, asset, amount };
    assert_eq!(e.apply(OPERATOR, &deposit(1, 5)), Outcome::Deposited { free: 1005 });
    let side = Ask;
    let fok = |symbol, id, price, quantity| {
        Command::FillOrKill { symbol, id, side, price, quantity }.to_bytes()
    };
    let market = |id, quantity| Command::Market { symbol: 0, id, side, quantity }.to_bytes();
    let replace =
        |id, price, quantity| Command::Replace { symbol: 0, id, price, quantity }.to_bytes();
    let long = Bytes::from([&limit(0, 9, Bid, 1, 1).to_bytes()[..], &[0]].concat());
    let mut sideways = limit(0, 9, Bid, 1, 1).to_bytes().to_vec();
    sideways[11] = 2;
    let cases: Vec<(ClientId, Bytes, Reject)> = vec![
        (BOB, Bytes::from_static(&[0]), UnknownOperation),
        (BOB, Bytes::from_static(&[9, 1, 2, 3]), UnknownOperation),
        (BOB, Bytes::new(), Truncated),
        (BOB, limit(0, 9, Bid, 1, 1).to_bytes().slice(..27), Truncated),
        (BOB, long, TrailingBytes),
        (BOB, sideways.into(), UnknownSide),
        (BOB, limit(2, 9, Bid, 1, 1).to_bytes(), UnknownSymbol),
        (BOB, Command::Cancel { symbol: 2, id: 4 }.to_bytes(), UnknownSymbol),
        (BOB, Command::Reduce { symbol: 9, id: 4, quantity: 1 }.to_bytes(), UnknownSymbol),
        (BOB, limit(1, 9, Bid, 0, 1).to_bytes(), InvalidPrice),
        (BOB, limit(1, 9, Ask, -5, 1).to_bytes(), InvalidPrice),
        (BOB, limit(1, 9, Bid, i64::MIN, 1).to_bytes(), InvalidPrice),
        (BOB, limit(1, 9, Bid, 1, 0).to_bytes(), InvalidQuantity),
        (BOB, limit(1, 9, Ask, 1, i64::MIN).to_bytes(), InvalidQuantity),
        (BOB, limit(1, 9, Bid, 1 << 32, 1 << 31).to_bytes(), ValueOverflow),
        (BOB, limit(1, 9, Ask, i64::MAX, i64::MAX).to_bytes(), ValueOverflow),
        (BOB, limit(0, 1, Bid, 1, 1).to_bytes(), DuplicateOrder),
        (BOB, limit(0, 9, Bid, 1, 1).to_bytes(), BookFull),
        (ALICE, limit(1, 9, Bid, 1, 1).to_bytes(), TooManyOpenOrders),
        (BOB, limit(1, 9, Bid, 983, 1).to_bytes(), InsufficientBalance),
        (BOB, limit(1, 9, Ask, 1, 1001).to_bytes(), InsufficientBalance),
        (CAROL, limit(1, 9, Ask, 1, 1001).to_bytes(), InsufficientBalance),
        (CAROL, limit(1, 9, Bid, 1, 1).to_bytes(), TooManyAccounts),
        (BOB, Command::Cancel { symbol: 0, id: 9 }.to_bytes(), UnknownOrder),
        (BOB, Command::Cancel { symbol: 1, id: 4 }.to_bytes(), UnknownOrder),
        (BOB, Command::Reduce { symbol: 0, id: 9, quantity: 1 }.to_bytes(), UnknownOrder),
        (BOB, Command::Cancel { symbol: 0, id: 1 }.to_bytes(), NotOwner),
        (BOB, Command::Reduce { symbol: 0, id: 1, quantity: 0 }.to_bytes(), NotOwner),
        (CAROL, Command::Cancel { symbol: 0, id: 1 }.to_bytes(), NotOwner),
        (BOB, deposit(0, 1).to_bytes(), NotOperator),
        (BOB, fok(0, 9, 10, 4), NotFilled),
        (BOB, fok(0, 9, 10, 3), NotFilled),
        (BOB, fok(0, 9, 11, 1), NotFilled),
        (BOB, fok(2, 9, 1, 1), UnknownSymbol),
        (BOB, fok(0, 1, 10, 1), DuplicateOrder),
        (BOB, fok(0, 9, 0, 1), InvalidPrice),
        (BOB, fok(0, 9, 1 << 32, 1 << 31), ValueOverflow),
        (BOB, fok(0, 9, 1, 1006), InsufficientBalance),
        (CAROL, fok(0, 9, 10, 1), TooManyAccounts),
        (BOB, market(1, 0), InvalidQuantity),
        (BOB, market(1, -1), InvalidQuantity),
        (BOB, market(4, 1), DuplicateOrder),
        (BOB, market(9, 1006), InsufficientBalance),
        (CAROL, market(9, 1), TooManyAccounts),
        (BOB, replace(9, 1, 1), UnknownOrder),
        (BOB, replace(1, 1, 1), NotOwner),
        (ALICE, replace(1, 0, 1), InvalidPrice),
        (ALICE, replace(1, 10, 0), InvalidQuantity),
        (ALICE, replace(1, i64::MAX, 2), ValueOverflow),
        (ALICE, replace(1, 981, 1), InsufficientBalance),
        (BOB, market(9, 1).slice(..19), Truncated),
        (BOB, replace(1, 1, 1).slice(..26), Truncated),
        (OPERATOR, deposit(3, 1).to_bytes(), UnknownAsset),
        (OPERATOR, deposit(0, 0).to_bytes(), InvalidAmount),
        (OPERATOR, deposit(0, -1).to_bytes(), InvalidAmount),
        (OPERATOR, deposit(0, i128::MIN).to_bytes(), InvalidAmount),
        (OPERATOR, deposit(0, i128::MAX).to_bytes(), BalanceOverflow),
        (OPERATOR, deposit(1, 1 << 120).to_bytes(), BalanceOverflow),
    ];
    let before = e.state_digest();
    let mut seen = BTreeSet::new();
    for (client, op, reason) in cases {
        let outcome = e.apply_bytes(client, &op);
        assert_eq!(outcome, Outcome::Rejected(reason), "{op:?}");
        let malformed =
            matches!(reason, UnknownOperation | Truncated | TrailingBytes | UnknownSide);
        assert_eq!(e.pre_check().check(&op).is_err(), malformed, "check of {op:?}");
        seen.insert(reason);
    }
    assert_eq!(e.state_digest(), before, "nothing was changed");
    assert_eq!(seen, Reject::ALL.iter().copied().collect(), "no reason is left out");
}

#[test]
fn reasons_have_numbers_and_words_of_their_own() {
    let words: BTreeSet<_> = Reject::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), Reject::ALL.len());
    for &reason in Reject::ALL {
        assert_eq!(Reject::from_code(reason.code()), Some(reason));
    }
    assert_eq!((Reject::from_code(0), Reject::from_code(255)), (None, None));
}

#[test]
fn an_order_beyond_its_trades_gives_up_the_rest() {
    let mut e = exchange();
    for id in 1..=3 {
        e.apply(ALICE, &limit(0, id, Side::Ask, 10, 1));
    }
    let fill = |trade| Fill { trade, maker: trade, price: 10, quantity: 1 };
    let fills = vec![fill(1), fill(2)];
    let outcome = e.apply(BOB, &limit(0, 7, Side::Bid, 12, 5));
    assert_eq!(outcome, Outcome::Placed { remaining: 0, dropped: 3, fills });
    // Paid 2 * 10 and holds nothing.
    let answer = e.query(&Query::Account { client: 2 }.to_bytes()).unwrap();
    let text = std::str::from_utf8(&answer).unwrap();
    assert!(text.contains(r#"{"asset":0,"free":980,"held":0},{"asset":1,"free":1002"#), "{text}");
}

#[test]
fn an_account_may_trade_with_itself_and_keeps_what_it_had() {
    let mut e = exchange();
    e.apply(ALICE, &limit(0, 1, Side::Ask, 10, 5));
    let outcome = e.apply(ALICE, &limit(0, 2, Side::Bid, 11, 7));
    let fills = vec![Fill { trade: 1, maker: 1, price: 10, quantity: 5 }];
    assert_eq!(outcome, Outcome::Placed { remaining: 2, dropped: 0, fills });
    e.apply(ALICE, &Command::Cancel { symbol: 0, id: 2 });
    let answer = e.query(&Query::Account { client: 1 }.to_bytes()).unwrap();
    let text = std::str::from_utf8(&answer).unwrap();
    assert_eq!(text.matches(r#""free":1000,"held":0"#).count(), 3, "{text}");
}

#[test]
fn queries_answer_in_json_and_refuse_in_words() {
    let mut e = exchange();
    e.apply(ALICE, &limit(0, 1, Side::Bid, 10, 5));
    e.apply(ALICE, &limit(0, 2, Side::Bid, 10, 2));
    e.apply(BOB, &limit(0, 3, Side::Ask, 12, 1));
    e.apply(BOB, &limit(0, 4, Side::Ask, 10, 1));
    let ask = |question: &str| match e.query(question.as_bytes()) {
        Ok(answer) => String::from_utf8(answer.to_vec()).unwrap(),
        Err(error) => format!("error: {error}"),
    };
    let level = |p, q, n| format!(r#"{{"price":{p},"quantity":{q},"orders":{n}}}"#);
    let expected = format!(r#"{{"bids":[{}],"asks":[{}]}}"#, level(10, 6, 2), level(12, 1, 1));
    assert_eq!(ask(r#"{"top":{"symbol":0}}"#), expected);
    assert_eq!(ask(r#"{"depth":{"symbol":0,"levels":9}}"#), expected);
    assert_eq!(
        ask(r#"{"order":{"symbol":0,"id":1}}"#),
        r#"{"id":1,"account":1,"side":"bid","price":10,"remaining":4,"arrival":0}"#
    );
    assert_eq!(ask(r#"{"order":{"symbol":0,"id":4}}"#), "null");
    assert_eq!(
        ask(r#"{"trades":{"symbol":0}}"#),
        r#"{"count":1,"recent":[{"sequence":1,"taker":4,"maker":1,"price":10,"quantity":1,"taker_side":"ask"}]}"#
    );
    assert!(ask(r#"{"symbols":{}}"#).starts_with(r#"[{"symbol":0,"name":"S0","base":1"#));
    assert!(ask(r#"{"account":{"client":77}}"#).contains(r#""opened":false"#));
    assert_eq!(ask(r#"{"top":{"symbol":2}}"#), "error: there is no symbol 2");
    for bad in ["", "{", "null", r#"{"top":{}}"#, r#"{"top":{"symbol":0,"x":1}}"#, "\u{1}"] {
        assert!(ask(bad).starts_with("error: the question is no query"), "{bad}");
    }
    for levels in [0u32, 1001, u32::MAX] {
        let text = ask(&format!(r#"{{"depth":{{"symbol":0,"levels":{levels}}}}}"#));
        assert!(text.starts_with("error: ask for 1 to 1000"), "{text}");
    }
    assert!(ask(&" ".repeat(5000)).starts_with("error: a question has at most"));
}

#[test]
fn settings_that_make_no_exchange_are_refused() {
    let wrong = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::markets(2);
        change(&mut settings);
        Exchange::new(settings, Suite::default()).err()
    };
    let spec = |name: &str, base, quote| SymbolSpec { name: name.into(), base, quote };
    assert_eq!(wrong(&|_| {}), None);
    assert_eq!(wrong(&|s| s.symbols.clear()), Some(SettingsError::Symbols(0)));
    assert_eq!(
        wrong(&|s| s.symbols = vec![spec("A", 1, 0); 2]),
        Some(SettingsError::Name("A".into()))
    );
    assert_eq!(
        wrong(&|s| s.symbols = vec![spec("A", 1, 1)]),
        Some(SettingsError::Assets("A".into()))
    );
    assert_eq!(
        wrong(&|s| s.symbols = vec![spec("A", u16::MAX, 1)]),
        Some(SettingsError::Assets("A".into()))
    );
    assert_eq!(
        wrong(&|s| s.max_fills = 0),
        Some(SettingsError::Limit { name: "max_fills", most: 65536, found: 0 })
    );
    assert_eq!(wrong(&|s| s.credit = u128::MAX), Some(SettingsError::Credit));
}

#[test]
fn a_wrong_events_file_is_refused_with_the_line() {
    let row = "1,2,3,236.47,100,created,bid";
    let parse = |rows: &str| {
        let text = format!("{}\n{row}\n{rows}", replay::EVENTS_HEADER);
        replay::parse_events(&text).map_err(|error| error.to_string())
    };
    let price = |text: &str| {
        let events = parse(&format!("1,2,3,{text},100,created,bid\n"));
        events.map(|events| events[1].price)
    };
    assert_eq!(parse("").map(|events| events.len()), Ok(1));
    assert_eq!(price("236.47"), Ok(23647));
    assert_eq!((price("236"), price("236.4"), price("0.00")), (Ok(23600), Ok(23640), Ok(0)));
    let too_fine = "line 3: price \"236.475\" has more than two decimals";
    assert_eq!(price("236.475"), Err(too_fine.into()));
    for bad in ["", ".", "1.", ".5", "-1.00", "+1", "1e3", "1,5", "NaN", "1.2.3", " 1"] {
        assert!(price(bad).unwrap_err().starts_with("line 3: "), "{bad}");
    }
    for huge in ["92233720368547758.08", "184467440737095516.16", "99999999999999999999"] {
        assert!(price(huge).is_err(), "{huge}");
    }
    let cases = [
        ("x,2,3,1.00,1,created,bid", "line 3: id \"x\" is not a whole number"),
        ("1,,3,1.00,1,created,bid", "line 3: timestamp \"\" is not a whole number"),
        ("1,2,y,1.00,1,created,bid", "line 3: exchange.timestamp \"y\" is not a whole number"),
        ("1,2,3,1.00,-1,created,bid", "line 3: volume \"-1\" is not a whole number"),
        ("1,2,3,1.00,9223372036854775808,created,bid", "is too large"),
        ("99999999999999999999,2,3,1.00,1,created,bid", "is too large"),
        ("1,2,3,1.00,1,moved,bid", "line 3: action \"moved\" is not created, changed or deleted"),
        ("1,2,3,1.00,1,created,buy", "line 3: direction \"buy\" is not bid or ask"),
        ("1,2,3,1.00,1,created", "line 3: a row has 7 fields"),
        ("1,2,3,1.00,1,created,bid,", "line 3: a row has 7 fields"),
        ("\n", "line 3: a row has 7 fields"),
    ];
    for (rows, message) in cases {
        let error = parse(rows).unwrap_err();
        assert!(error.contains(message), "{rows}: {error}");
    }
    for text in ["", row] {
        assert_eq!(replay::parse_events(text).unwrap_err().line, 1);
    }
}

#[test]
fn results_that_are_not_whole_make_no_files() {
    let mut e = exchange();
    let commands = [
        limit(0, 1, Side::Ask, 10, 1),
        limit(0, 2, Side::Bid, 10, 1),
        limit(0, 3, Side::Ask, 10, 1),
        limit(0, 4, Side::Bid, 10, 1),
        limit(0, 5, Side::Bid, 10, 1),
    ];
    let outcomes: Vec<_> = commands.iter().map(|c| e.apply(ALICE, c)).collect();
    let trades = |skip: usize| {
        replay::trades_from_outcomes(commands.iter().zip(&outcomes).skip(skip)).map(|t| t.len())
    };
    assert_eq!((trades(0), trades(2)), (Ok(2), Err(CollectError::TradeGap(1))));
    let cancelled = Outcome::Cancelled { quantity: 1 };
    let wrong = replay::trades_from_outcomes([(&commands[0], &cancelled)]);
    assert_eq!(wrong, Err(CollectError::Mismatch(0)));

    e.apply(ALICE, &limit(0, 6, Side::Bid, 10, 1));
    let page = |e: &Exchange, after| {
        e.query(&Query::Orders { symbol: 0, after, limit: 1 }.to_bytes()).unwrap()
    };
    let first = page(&e, None);
    let after =
        serde_json::from_slice::<tercio_exchange::query::OrdersAnswer>(&first).unwrap().next;
    let second = page(&e, after);
    let book = |pages: &[&Bytes]| replay::book_from_query_pages(pages).map(|b| b.len());
    assert_eq!(book(&[&first, &second]), Ok(2));
    assert_eq!(book(&[&first]), Err(CollectError::Incomplete));
    assert_eq!(book(&[]), Err(CollectError::Incomplete));
    assert_eq!(book(&[&first, &second, &second]), Err(CollectError::Incomplete));
    assert_eq!(book(&[&Bytes::from_static(b"{}")]), Err(CollectError::Page(0)));
    e.apply(ALICE, &limit(0, 7, Side::Bid, 10, 1));
    assert_eq!(book(&[&first, &page(&e, after)]), Err(CollectError::Revision(1)));
}

#[test]
fn lines_are_commands_and_outcomes_have_words() {
    use tercio_exchange::text::{self, TextError};
    let (symbol, id, side, price, quantity) = (3, 7, Side::Ask, 101, 10);
    let cases = [
        ("sell 10 @ 101 in 3 as 7", Command::Limit { symbol, id, side, price, quantity }),
        (" sell 10  in 3 as 7", Command::Market { symbol, id, side, quantity }),
        (
            "sell 10 @ 101 ioc in 3 as 7",
            Command::ImmediateOrCancel { symbol, id, side, price, quantity },
        ),
        ("sell 10 @ 101 fok in 3 as 7", Command::FillOrKill { symbol, id, side, price, quantity }),
        ("buy -1 in 3 as 7", Command::Market { symbol, id, side: Side::Bid, quantity: -1 }),
        ("cancel 7 in 3", Command::Cancel { symbol, id }),
        ("reduce 7 to 10 in 3", Command::Reduce { symbol, id, quantity }),
        ("replace 7 with 10 @ 101 in 3", Command::Replace { symbol, id, price, quantity }),
        ("deposit 5 of 2 to 9", Command::Deposit { account: 9, asset: 2, amount: 5 }),
    ];
    for (line, command) in cases {
        assert_eq!(text::parse(line), Ok(command), "{line}");
    }
    let usage = TextError::Usage(text::USAGE);
    for line in ["", "buy", "buy 1 @ in 3 as 7", "buy 1 @ 2 gtc in 3 as 7", "hold 1 in 3 as 7"] {
        assert_eq!(text::parse(line), Err(usage.clone()), "{line}");
    }
    for number in ["x", "1.5", "99999999999999999999"] {
        let line = format!("buy 1 @ {number} in 0 as 1");
        assert_eq!(text::parse(&line), Err(TextError::Number(number.into())));
    }
    assert_eq!(text::parse("cancel 1 in 65536"), Err(TextError::Number("65536".into())));

    for (line, query) in [
        ("symbols", Query::Symbols {}),
        ("top 3", Query::Top { symbol }),
        ("depth 3 5", Query::Depth { symbol, levels: 5 }),
        ("order 7 in 3", Query::Order { symbol, id }),
        ("account 7", Query::Account { client: 7 }),
        ("trades 3", Query::Trades { symbol }),
        ("orders 3", Query::Orders { symbol, after: None, limit: 100 }),
        (r#" {"top":{"symbol":3}}"#, Query::Top { symbol }),
    ] {
        assert_eq!(text::parse_query(line), Ok(query), "{line}");
    }
    assert_eq!(text::parse_query("top"), Err(TextError::Usage(text::QUERY_USAGE)));
    assert!(matches!(text::parse_query("{}"), Err(TextError::Json(_))));

    let fills = vec![Fill { trade: 4, maker: 7, price: 101, quantity: 2 }];
    for (outcome, words) in [
        (Outcome::Rejected(Reject::NotFilled), "rejected: the order cannot be filled at once"),
        (Outcome::Placed { remaining: 3, dropped: 0, fills: vec![] }, "accepted; 3 in the book"),
        (
            Outcome::Placed { remaining: 0, dropped: 1, fills },
            "accepted; 0 in the book, 1 given up\ntrade 4: 2 @ 101 with 7",
        ),
        (Outcome::Reduced { remaining: 3 }, "3 left, in the same place"),
        (Outcome::Cancelled { quantity: 3 }, "cancelled; 3 were left"),
        (Outcome::Deposited { free: 3 }, "deposited; 3 are free"),
    ] {
        assert_eq!(outcome.to_string(), words);
    }
}

#[test]
fn a_replaced_order_that_trades_is_the_taker_of_its_side() {
    let mut e = exchange();
    let commands = [
        limit(0, 1, Side::Ask, 10, 1),
        limit(0, 2, Side::Bid, 9, 1),
        Command::Replace { symbol: 0, id: 2, price: 10, quantity: 1 },
    ];
    let outcomes: Vec<_> = commands.iter().map(|c| e.apply(ALICE, c)).collect();
    let trades = replay::trades_from_outcomes(commands.iter().zip(&outcomes)).unwrap();
    assert_eq!((trades[0].taker, trades[0].taker_side, trades[0].maker), (2, Side::Bid, 1));
    let unknown = replay::trades_from_outcomes([(&commands[2], &outcomes[2])]);
    assert_eq!(unknown, Err(CollectError::Mismatch(0)));
}

proptest! {
    #[test]
    fn commands_and_outcomes_have_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        // Mostly garbage; the first byte small so that some is not.
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first %= 10;
        }
        let bytes = Bytes::from(bytes);
        if let Ok(command) = Command::parse(&bytes) {
            prop_assert_eq!(&command.to_bytes(), &bytes);
        }
        if let Ok(outcome) = Outcome::parse(&bytes) {
            prop_assert_eq!(&outcome.to_bytes(), &bytes);
        }
    }

    #[test]
    fn outcomes_read_back(
        words in any::<[u64; 4]>(), free in any::<u128>(), fills in 0usize..5, kind in 0u8..5
    ) {
        let [trade, maker, price, quantity] = words;
        let outcome = match kind {
            0 => Outcome::Rejected(Reject::ALL[trade as usize % Reject::ALL.len()]),
            1 => {
                let fills = vec![Fill { trade, maker, price, quantity }; fills];
                Outcome::Placed { remaining: trade, dropped: maker, fills }
            }
            2 => Outcome::Reduced { remaining: trade },
            3 => Outcome::Cancelled { quantity },
            _ => Outcome::Deposited { free },
        };
        let bytes = outcome.to_bytes();
        prop_assert_eq!(Outcome::parse(&bytes), Ok(outcome));
        let cut = bytes.slice(..bytes.len() - 1);
        prop_assert!(matches!(Outcome::parse(&cut), Err(DecodeError::Truncated(_))));
    }

    #[test]
    fn garbage_gets_one_reply_each_and_no_panic(
        ops in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..30),
        question in prop::collection::vec(any::<u8>(), 0..60),
        chunks in prop::collection::vec(
            (prop::collection::vec(0u8..4, 0..9), prop::collection::vec(any::<u8>(), 0..90)), 0..5
        ),
    ) {
        let mut e = exchange();
        let operations: Vec<_> = ops
            .into_iter()
            .map(|mut op| {
                if let Some(first) = op.first_mut() {
                    *first %= 10;
                }
                Operation { client: ALICE, seq: RequestSeq(1), op: op.into() }
            })
            .collect();
        let context = Context { height: Height(1), time: Timestamp(0), seed: Digest::NULL };
        let mut replies = Replies::default();
        e.execute(&context, &operations, &mut replies);
        prop_assert_eq!(replies.len(), operations.len());
        for i in 0..replies.len() {
            prop_assert!(Outcome::parse(&Bytes::copy_from_slice(replies.get(i))).is_ok());
        }
        let _ = e.query(&question);
        let chunks: Vec<_> =
            chunks.into_iter().map(|(label, chunk)| (label.into(), chunk.into())).collect();
        prop_assert!(e.restore(&chunks).is_err());
        let _ = replay::parse_events(&String::from_utf8_lossy(&question));
    }
}

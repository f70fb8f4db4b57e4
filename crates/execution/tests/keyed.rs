//! Seam 1: a transaction over the engine's store is an application like any other.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tercio_execution::{
    AppError, Application, Context, Footprint, Keyed, Operation, Outcome, Replies, StateView,
    Store, Transaction,
};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};

const SUITE: Suite = Suite::Sha256Ed25519;

/// Moves units between accounts of one byte; an operation is `from, to, amount`. It writes before
/// it checks, so that a failure has something to undo. An account without units has no key.
struct Transfers {
    declare: bool,
}

fn balance(stored: Option<&Bytes>) -> u64 {
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes.as_ref().try_into().unwrap()))
}

fn write(view: &mut StateView<'_>, account: u8, units: u64) {
    match units {
        0 => view.delete(&[account]),
        _ => view.put(&[account], &units.to_le_bytes()),
    }
}

impl Transaction for Transfers {
    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        let &[from, to, amount] = tx.op.as_ref() else {
            result.extend_from_slice(b"malformed");
            return Outcome::Abort;
        };
        let amount = u64::from(amount);
        let credited = balance(view.get(&[to]).as_ref()) + amount;
        write(view, to, credited);
        // Account 0 is the mint.
        if from != 0 {
            let Some(left) = balance(view.get(&[from]).as_ref()).checked_sub(amount) else {
                result.extend_from_slice(b"too little");
                return Outcome::Abort;
            };
            write(view, from, left);
        }
        result.extend_from_slice(&balance(view.get(&[to]).as_ref()).to_le_bytes());
        Outcome::Commit
    }

    fn footprint(&self, tx: &Operation) -> Footprint {
        match tx.op.as_ref() {
            &[from, to, _] if self.declare => {
                let key = |account: u8| Bytes::copy_from_slice(&[account]);
                Footprint::Declared {
                    reads: vec![],
                    writes: vec![key(from), key(to)],
                    ranges: vec![],
                }
            }
            _ => Footprint::Unknown,
        }
    }

    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        store.get(question).cloned().ok_or_else(|| AppError("no such account".into()))
    }
}

/// The same without store, view or undo.
fn naive(accounts: &mut BTreeMap<u8, u64>, op: &[u8]) -> Vec<u8> {
    let &[from, to, amount] = op else { return b"malformed".to_vec() };
    let mut after = accounts.clone();
    *after.entry(to).or_default() += u64::from(amount);
    if from != 0 {
        let has = after.entry(from).or_default();
        let Some(left) = has.checked_sub(u64::from(amount)) else { return b"too little".to_vec() };
        *has = left;
    }
    after.retain(|_, units| *units > 0);
    *accounts = after;
    accounts.get(&to).copied().unwrap_or(0).to_le_bytes().to_vec()
}

fn run(app: &mut impl Application, ops: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
    let operation = |op: &Vec<u8>| Operation {
        client: ClientId(1),
        seq: RequestSeq(1),
        op: Bytes::copy_from_slice(op),
    };
    let mut replies = Replies::default();
    app.execute(&context, &ops.iter().map(operation).collect::<Vec<_>>(), &mut replies);
    (0..replies.len()).map(|i| replies.get(i).to_vec()).collect()
}

fn op() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u8..12, 0u8..12, 0u8..40).prop_map(|(a, b, n)| vec![a, b, n]),
        1 => prop::collection::vec(any::<u8>(), 0..5),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_adapter_equals_a_naive_reference(
        ops in prop::collection::vec(op(), 1..120),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut app = Keyed::new(Transfers { declare: true }, SUITE);
        let mut accounts = BTreeMap::new();
        let cut = cut.index(ops.len());
        let expected: Vec<_> = ops.iter().map(|op| naive(&mut accounts, op)).collect();

        let mut got = run(&mut app, &ops[..cut]);
        let mut restored = Keyed::new(Transfers { declare: false }, SUITE);
        restored.restore(&app.snapshot().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(restored.state_digest(), app.state_digest());
        got.extend(run(&mut app, &ops[cut..]));
        prop_assert_eq!(&got, &expected);
        prop_assert_eq!(&run(&mut restored, &ops[cut..]), &expected[cut..]);
        prop_assert_eq!(restored.state_digest(), app.state_digest());

        for account in 0..=255u8 {
            let has = app.query(&[account]).ok();
            prop_assert_eq!(balance(has.as_ref()), accounts.get(&account).copied().unwrap_or(0));
            prop_assert_eq!(has.is_some(), accounts.contains_key(&account));
        }
        let mut fresh = Keyed::new(Transfers { declare: false }, SUITE);
        prop_assert_eq!(tercio_execution::check_contract(&mut app, &mut fresh, SUITE), Ok(()));
        // The digest is that of the content, however it came about.
        let mut direct = Store::new(SUITE);
        for (account, units) in &accounts {
            direct.put(&[*account], &units.to_le_bytes());
        }
        prop_assert_eq!(direct.digest(), app.state_digest());
    }
}

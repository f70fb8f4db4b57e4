//! The chains of PRISM-KV's PUTs and DELETEs.

use super::layout::{SLOT, put_bytes};
use crate::client::Draft;
use crate::op::{
    Action, Addr, Cas, Deref, MAX_CAS_WORDS, Masks, Mode, Op, Operand, Payload, Source,
};

/// The longest key that a compare-and-swap can compare, behind the item's header.
pub(super) const SHORT_KEY: usize = (MAX_CAS_WORDS - 1) * 8;
/// Of an item's header, what says how long the key is.
const KEY_LENGTH: u64 = 0xffff;

const NEW: Addr = Addr::scratch(0);
const NEW_BOUND: Addr = Addr::scratch(8);
const OLD: Addr = Addr::scratch(16);

/// The whole of a PUT: looks at the slot, whether the key is this one, and replaces the item. Seven
/// operations: their last two tell the new buffer's address and what the slot held.
pub(super) fn look_and_install(draft: &mut Draft, slot: Addr, key: &[u8], item: &[u64], pool: u8) {
    draft.op(Action::Read {
        addr: slot,
        len: SLOT as u32,
        deref: Deref::Direct,
        redirect: Some(OLD),
    });
    // Is it this key's? Compares the item's header, as far as it is the key's length, and the key.
    let mut same = vec![key.len() as u64];
    put_bytes(&mut same, key);
    let mut compare = [u64::MAX; MAX_CAS_WORDS];
    compare[0] = KEY_LENGTH;
    let words = same.len();
    draft.op(Op::from(Action::Cas(Cas {
        mode: Mode::Equal,
        target: OLD,
        indirect: true,
        words: words as u8,
        data: Operand::Inline(&same),
        comparand: None,
        masks: Masks::Bits { compare: &compare[..words], swap: &[0; 4][..words] },
    }))
    .conditional());
    install(draft, slot, item, pool, Operand::At(OLD), true);
    draft.op(Action::Read { addr: OLD, len: 8, deref: Deref::Direct, redirect: None });
}

/// Takes a buffer, writes the item, swaps the slot from `old`, tells the buffer's address: four
/// operations. With `conditional`, only if what stands before them succeeded.
pub(super) fn install(
    draft: &mut Draft,
    slot: Addr,
    item: &[u64],
    pool: u8,
    old: Operand<'_>,
    conditional: bool,
) {
    let bound = [item.len() as u64 * 8];
    let source = Source::Inline(Payload::of_words(&bound));
    let write = Action::Write { addr: NEW_BOUND, deref: Deref::Direct, source };
    draft.op(Op { conditional, action: write });
    let data = Payload::of_words(item);
    draft.op(Op::from(Action::Allocate { pool, data, redirect: Some(NEW) }).conditional());
    draft.op(Op::from(Action::Cas(Cas {
        mode: Mode::Equal,
        target: slot,
        indirect: false,
        words: 2,
        data: Operand::At(NEW),
        comparand: Some(old),
        // The pointer, with its generation, is what has to be the same.
        masks: Masks::Words { compare: 0b01, swap: 0b11 },
    }))
    .conditional());
    draft.op(Action::Read { addr: NEW, len: 8, deref: Deref::Direct, redirect: None });
}

//! Seam 2: the state digest depends on the content alone, and its cost follows the changes.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tercio_crypto::hash;
use tercio_execution::MerkleMap;
use tercio_types::{Digest, EMPTY_ROOT, Suite};

const SUITE: Suite = Suite::Sha256Ed25519;

fn value(n: u8) -> Digest {
    Digest([n; 32])
}

fn label() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        prop::collection::vec(0u8..2, 0..12),
        (0u64..64).prop_map(|n| n.to_be_bytes().to_vec()),
    ]
}

fn content() -> impl Strategy<Value = BTreeMap<Vec<u8>, u8>> {
    prop::collection::btree_map(label(), any::<u8>(), 0..60)
}

fn built<'a>(entries: impl IntoIterator<Item = (&'a Vec<u8>, &'a u8)>) -> MerkleMap {
    let mut map = MerkleMap::new(SUITE);
    entries.into_iter().for_each(|(label, v)| map.set(label, Some(value(*v))));
    map
}

/// A label as the bits that the trie's definition gives it: a one and the byte, for each byte.
fn bits(label: &[u8]) -> Vec<bool> {
    label
        .iter()
        .flat_map(|byte| std::iter::once(true).chain((0..8).rev().map(move |i| byte >> i & 1 == 1)))
        .collect()
}

/// The root straight from its definition, without a tree.
fn defined_root(entries: &[(&Vec<u8>, &u8)]) -> Digest {
    match entries {
        [] => EMPTY_ROOT,
        [(label, v)] => {
            let len = (label.len() as u32).to_le_bytes();
            hash(SUITE, &[&[0], &len, label, &value(**v).0])
        }
        _ => {
            let bit = |label: &[u8], i: usize| bits(label).get(i).copied().unwrap_or(false);
            let split_at = |i: usize| entries.partition_point(|(label, _)| !bit(label, i));
            let split = (0..).map(split_at).find(|s| (1..entries.len()).contains(s)).unwrap();
            let (left, right) = entries.split_at(split);
            hash(SUITE, &[&[1], &defined_root(left).0, &defined_root(right).0])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equal_content_gives_the_defined_root_whatever_the_way(
        content in content(),
        detour in prop::collection::vec((label(), any::<u8>()), 0..60),
        order in any::<u64>(),
        roots_every in 1usize..10,
    ) {
        let entries: Vec<_> = content.iter().collect();
        let expected = defined_root(&entries);
        prop_assert_eq!(built(content.iter()).root(), expected);

        // Another order, with labels that come and go in between, and roots taken on the way.
        let mut shuffled = entries.clone();
        shuffled.sort_by_key(|(label, _)| hash(SUITE, &[&order.to_le_bytes(), label]));
        let mut map = MerkleMap::new(SUITE);
        for (i, (label, v)) in detour.iter().enumerate() {
            map.set(label, Some(value(*v)));
            if i % roots_every == 0 {
                map.root();
            }
        }
        for (i, (label, v)) in shuffled.iter().enumerate() {
            map.set(label, Some(value(**v)));
            if i % roots_every == 0 {
                map.root();
            }
        }
        for (label, _) in &detour {
            map.set(label, content.get(label).map(|v| value(*v)));
        }
        prop_assert_eq!(map.root(), expected);
        prop_assert_eq!(map.len(), content.len());
        for label in content.keys().chain(detour.iter().map(|(label, _)| label)) {
            prop_assert_eq!(map.get(label), content.get(label).map(|v| value(*v)));
        }
    }

    #[test]
    fn any_change_gives_another_root(content in content(), label in label(), v in any::<u8>()) {
        let mut map = built(content.iter());
        let before = map.root();
        let changes = match content.get(&label) {
            Some(old) => vec![None, Some(value(old.wrapping_add(1)))],
            None => vec![Some(value(v))],
        };
        for change in changes {
            let mut changed = map.clone();
            changed.set(&label, change);
            prop_assert_ne!(changed.root(), before);
            changed.set(&label, content.get(&label).map(|v| value(*v)));
            prop_assert_eq!(changed.root(), before, "and back");
        }
    }
}

#[test]
fn the_cost_of_a_root_follows_the_changes() {
    for size in [100u64, 10_000, 200_000] {
        let mut map = MerkleMap::new(SUITE);
        (0..size).for_each(|i| map.set(&i.to_be_bytes(), Some(value(0))));
        map.root();
        assert_eq!(map.hashes(), 2 * size - 1, "each node once");
        let before = map.hashes();
        map.root();
        map.set(&3u64.to_be_bytes(), Some(value(0)));
        map.root();
        assert_eq!(map.hashes(), before, "nothing changed, nothing hashed");

        let depth = u64::from(64 - size.leading_zeros()) + 1;
        for changes in [1, 10] {
            let before = map.hashes();
            (0..changes).for_each(|i| map.set(&(i * size / 10).to_be_bytes(), Some(value(9))));
            (0..changes).for_each(|i| map.set(&(i * size / 10).to_be_bytes(), Some(value(8))));
            map.root();
            let cost = map.hashes() - before;
            assert!((1..=changes * depth).contains(&cost), "{cost} hashes, {changes} of {size}");
        }
    }
}

/// Labels that are each other's prefixes make the deepest tree there is.
#[test]
fn a_hostile_set_of_labels_does_not_exhaust_the_stack() {
    let mut map = MerkleMap::new(SUITE);
    let long = vec![0xff; 20_000];
    (0..long.len()).for_each(|n| map.set(&long[..n], Some(value(1))));
    let full = map.root();
    (1..long.len()).for_each(|n| map.set(&long[..n], None));
    assert_ne!(map.root(), full);
    assert_eq!(map.root(), built([(&Vec::new(), &1)]).root());
}

//! Binary Merkle trees as in RFC 6962 section 2.1: leaves and nodes are hashed under different
//! prefixes, and a tree that is not full splits at the largest power of two below its size.

use crate::hash;
use tercio_types::{Digest, EMPTY_ROOT, Suite};

/// The root over `leaves`, given as the digests of their content. No leaves give [`EMPTY_ROOT`].
#[must_use]
pub fn merkle_root(suite: Suite, leaves: &[Digest]) -> Digest {
    match leaves {
        [] => EMPTY_ROOT,
        [leaf] => hash(suite, &[&[0], &leaf.0]),
        _ => {
            let split = leaves.len().next_power_of_two() / 2;
            let (left, right) = leaves.split_at(split);
            let (left, right) = (merkle_root(suite, left), merkle_root(suite, right));
            hash(suite, &[&[1], &left.0, &right.0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_number_of_leaves_change_the_root() {
        let suite = Suite::default();
        let leaves: Vec<_> = (0..7u8).map(|i| hash(suite, &[&[i]])).collect();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..=7 {
            assert!(seen.insert(merkle_root(suite, &leaves[..n])));
        }
        let mut swapped = leaves;
        swapped.swap(0, 6);
        assert!(seen.insert(merkle_root(suite, &swapped)));
    }
}

//! Merkle trees of sixteen children a node: half the hashing of a binary tree, since a node's
//! padding and prefix are spread over more children. Leaves and nodes are hashed under different
//! prefixes, as in RFC 6962, so that neither passes for the other.

use crate::{HashInput, hash, hash_many};
use tercio_types::{Digest, EMPTY_ROOT, Suite};

/// The children of a node.
const CHILDREN: usize = 16;

/// What stands before a leaf's content, and before a node's children.
const LEAF: u8 = 0;
const NODE: u8 = 1;

/// The digest of a leaf with the content `head` and `body`, one behind the other.
#[must_use]
pub fn merkle_leaf(suite: Suite, head: &[u8], body: &[u8]) -> Digest {
    hash(suite, &[&[LEAF], head, body])
}

/// Appends the digests of many leaves, as [`merkle_leaf`] gives them. A head has at most 63 bytes.
pub fn merkle_leaves<const HEAD: usize>(
    suite: Suite,
    leaves: &[([u8; HEAD], &[u8])],
    out: &mut Vec<Digest>,
) {
    let mut heads = vec![[LEAF; 64]; leaves.len()];
    for (place, (head, _)) in heads.iter_mut().zip(leaves) {
        place[1..=HEAD].copy_from_slice(head);
    }
    let messages: Vec<HashInput<'_>> = heads
        .iter()
        .zip(leaves)
        .map(|(head, (_, body))| HashInput { head: &head[..=HEAD], body })
        .collect();
    hash_many(suite, &messages, out);
}

/// The root over digests of leaves, or over roots of trees that are to be parts of this one. Each
/// level hashes sixteen digests into one, and the rest at its end; a single digest is its own root.
/// None give [`EMPTY_ROOT`].
#[must_use]
pub fn merkle_root(suite: Suite, digests: &[Digest]) -> Digest {
    match digests {
        [] => EMPTY_ROOT,
        [root] => *root,
        _ if digests.len() <= CHILDREN => node(suite, digests),
        _ => merkle_root(suite, &level(suite, digests)),
    }
}

/// The nodes above these, side by side.
fn level(suite: Suite, digests: &[Digest]) -> Vec<Digest> {
    let mut nodes = Vec::with_capacity(digests.len().div_ceil(CHILDREN));
    let (whole, rest) = digests.as_chunks::<CHILDREN>();
    let children: Vec<_> = whole.iter().map(|children| children.map(|child| child.0)).collect();
    let bodies = children.iter().map(|children| children.as_flattened());
    let messages: Vec<HashInput<'_>> =
        bodies.map(|body| HashInput { head: &[NODE], body }).collect();
    hash_many(suite, &messages, &mut nodes);
    if !rest.is_empty() {
        nodes.push(node(suite, rest));
    }
    nodes
}

fn node(suite: Suite, children: &[Digest]) -> Digest {
    if let [only] = children {
        return *only;
    }
    let mut bytes = [NODE; 1 + 32 * CHILDREN];
    for (place, child) in bytes[1..].chunks_exact_mut(32).zip(children) {
        place.copy_from_slice(&child.0);
    }
    hash(suite, &[&bytes[..1 + 32 * children.len()]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_number_of_leaves_change_the_root() {
        let suite = Suite::default();
        let leaves: Vec<_> = (0..40u8).map(|i| merkle_leaf(suite, &[], &[i])).collect();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..=leaves.len() {
            assert!(seen.insert(merkle_root(suite, &leaves[..n])));
        }
        let mut swapped = leaves.clone();
        swapped.swap(0, 36);
        assert!(seen.insert(merkle_root(suite, &swapped)));
        assert_eq!(leaves[3], hash(suite, &[&[0], &[3]]));
        let node = |part: &[Digest]| {
            let all: Vec<u8> = part.iter().flat_map(|digest| digest.0).collect();
            hash(suite, &[&[1], &all])
        };
        let level = [node(&leaves[..16]), node(&leaves[16..32]), node(&leaves[32..])];
        assert_eq!(merkle_root(suite, &leaves), node(&level));
        // A root of a part stands where the part's leaves stood.
        assert_eq!(merkle_root(suite, &leaves[..1]), leaves[0]);
    }
}

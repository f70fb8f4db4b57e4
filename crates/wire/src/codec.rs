//! The canonical encodings of the shared types.

use crate::{Decode, DecodeError, Encode, Reader, list};
use bytes::Bytes;
use tercio_crypto::{HashInput, hash_many};
use tercio_types::{
    Attested, AttestedKind, Authenticator, Batch, BlockHeader, CertifiedCheckpoint, Checkpoint,
    ClientId, Digest, Epoch, Height, MAX_REPLICAS, OpKind, Ops, Package, ReplicaId, RequestSeq,
    RequestWindow, SeqNum, SignatureBytes, Suite, Tag, Tags, Timestamp,
};

/// The most operations in a package.
const MAX_OPS: usize = 1 << 16;
/// The most packages in a batch.
const MAX_PACKAGES: usize = 1 << 20;

/// The number of the authenticator that is a signature.
pub(crate) const SIGNATURE: u8 = 3;

pub(crate) fn authenticator_kind(auth: &Authenticator) -> u8 {
    match auth {
        Authenticator::Mac(_) => 1,
        Authenticator::MacVector(_) => 2,
        Authenticator::Signature(_) => SIGNATURE,
        Authenticator::Attested(_) => 4,
    }
}

pub(crate) fn authenticator_len(auth: &Authenticator) -> usize {
    match auth {
        Authenticator::Mac(_) => 16,
        Authenticator::MacVector(tags) => 16 * tags.len(),
        Authenticator::Signature(signature) => signature.as_slice().len(),
        Authenticator::Attested(attested) => ATTESTED + attested.certificate.as_slice().len(),
    }
}

pub(crate) fn put_authenticator(auth: &Authenticator, out: &mut Vec<u8>) {
    match auth {
        Authenticator::Mac(tag) => out.extend_from_slice(&tag.0),
        Authenticator::MacVector(tags) => out.extend_from_slice(tags.as_bytes()),
        Authenticator::Signature(signature) => out.extend_from_slice(signature.as_slice()),
        Authenticator::Attested(attested) => {
            out.extend_from_slice(&attested_head(attested));
            out.extend_from_slice(attested.certificate.as_slice());
        }
    }
}

/// The bytes of an attested authenticator before the certificate.
const ATTESTED: usize = 45;

/// `kind: u8 | counter: u32 | incarnation: u64 | value: u128 | previous: u128`.
pub(crate) fn attested_head(attested: &Attested) -> [u8; ATTESTED] {
    let Attested { kind, counter, incarnation, value, previous, .. } = attested;
    let mut out = [0; ATTESTED];
    out[0] = kind.number();
    out[1..5].copy_from_slice(&counter.to_le_bytes());
    out[5..13].copy_from_slice(&incarnation.to_le_bytes());
    out[13..29].copy_from_slice(&value.to_le_bytes());
    out[29..].copy_from_slice(&previous.to_le_bytes());
    out
}

fn take_attested(certificate: usize, input: &mut Reader) -> Result<Authenticator, DecodeError> {
    const WHAT: &str = "attested";
    let kind = input.u8(WHAT)?;
    let unknown = DecodeError::Unknown { what: WHAT, found: kind.into() };
    let attested = Attested {
        kind: AttestedKind::from_number(kind).ok_or(unknown)?,
        counter: input.u32(WHAT)?,
        incarnation: input.u64(WHAT)?,
        value: u128::from_le_bytes(input.array(WHAT)?),
        previous: u128::from_le_bytes(input.array(WHAT)?),
        certificate: signature(&input.take(certificate, WHAT)?)?,
    };
    if !attested.is_canonical() {
        return Err(DecodeError::NotCanonical(WHAT));
    }
    Ok(Authenticator::Attested(Box::new(attested)))
}

fn signature(bytes: &Bytes) -> Result<SignatureBytes, DecodeError> {
    SignatureBytes::new(bytes).ok_or(DecodeError::TooLong {
        what: "signature",
        found: bytes.len() as u64,
        limit: SignatureBytes::MAX as u64,
    })
}

pub(crate) fn take_authenticator(
    kind: u8,
    len: usize,
    input: &mut Reader,
) -> Result<Authenticator, DecodeError> {
    const WHAT: &str = "authenticator";
    match kind {
        1 if len == 16 => Ok(Authenticator::Mac(Tag(input.array(WHAT)?))),
        2 if (1..=MAX_REPLICAS).contains(&(len / 16)) => {
            let tags = Tags::from_bytes(input.take(len, WHAT)?);
            tags.map(Authenticator::MacVector).ok_or(DecodeError::NotCanonical(WHAT))
        }
        3 => Ok(signature(&input.take(len, WHAT)?)?.into()),
        4 if len >= ATTESTED => take_attested(len - ATTESTED, input),
        1 | 2 | 4 => Err(DecodeError::NotCanonical(WHAT)),
        other => Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
    }
}

/// Appends an authenticator in the form `kind: u8 | length: u16 | bytes`.
pub fn encode_authenticator(auth: &Authenticator, out: &mut Vec<u8>) {
    out.push(authenticator_kind(auth));
    out.extend_from_slice(&(authenticator_len(auth) as u16).to_le_bytes());
    put_authenticator(auth, out);
}

/// Reads what [`encode_authenticator`] wrote.
///
/// # Errors
/// When the bytes are no authenticator.
pub fn decode_authenticator(input: &mut Reader) -> Result<Authenticator, DecodeError> {
    let kind = input.u8("authenticator")?;
    let len = usize::from(input.u16("authenticator")?);
    take_authenticator(kind, len, input)
}

/// Appends what a package's digest covers: everything but the authenticator.
pub fn encode_package_content(
    client: ClientId,
    first: RequestSeq,
    kind: OpKind,
    replier: ReplicaId,
    ops: &[Bytes],
    out: &mut Vec<u8>,
) {
    put_package_head(client, first, kind, replier, out);
    list::encode(out, ops.len(), |i, out| out.extend_from_slice(&ops[i]));
}

fn put_package_head(
    client: ClientId,
    first: RequestSeq,
    kind: OpKind,
    replier: ReplicaId,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&client.0.to_le_bytes());
    out.extend_from_slice(&first.0.to_le_bytes());
    out.push(match kind {
        OpKind::User => 0,
        OpKind::System => 1,
        OpKind::Read => 2,
    });
    out.extend_from_slice(&replier.0.to_le_bytes());
}

/// The content of a package.
#[must_use]
pub fn package_content(package: &Package) -> Bytes {
    let mut out = Vec::with_capacity(PACKAGE_HEAD + package.ops.buffer().len());
    put_package_content(package, &mut out);
    out.into()
}

fn put_package_content(package: &Package, out: &mut Vec<u8>) {
    put_package_head(package.client, package.first, package.kind, package.replier, out);
    // Operations are kept as the list that is written here.
    out.extend_from_slice(package.ops.buffer());
}

/// The bytes of a package's content before its operations.
const PACKAGE_HEAD: usize = 8 + 8 + 1 + 2;

/// Reads a package's content and names it by its digest.
///
/// # Errors
/// When the bytes are no content, or it has no operation, or its numbers overflow.
pub fn package_from_content(
    content: &Bytes,
    auth: Authenticator,
    suite: Suite,
) -> Result<Package, DecodeError> {
    let digest = tercio_crypto::hash(suite, &[content]);
    named_package(content.clone(), digest, auth, suite)
}

/// Reads a package's content whose digest was computed before.
pub(crate) fn named_package(
    content: Bytes,
    digest: Digest,
    auth: Authenticator,
    suite: Suite,
) -> Result<Package, DecodeError> {
    let mut input = Reader::new(content, suite);
    let client = ClientId(input.u64("package")?);
    let first = RequestSeq(input.u64("package")?);
    let kind = match input.u8("package")? {
        0 => OpKind::User,
        1 => OpKind::System,
        2 => OpKind::Read,
        other => return Err(DecodeError::Unknown { what: "op kind", found: other.into() }),
    };
    let replier = ReplicaId(input.u16("package")?);
    let (count, len) = list::check(input.rest(), MAX_OPS, "package")?;
    let ops = input.take_rest();
    if len < ops.len() {
        return Err(DecodeError::Trailing(ops.len() - len));
    }
    if count == 0 {
        return Err(DecodeError::NotCanonical("package without operations"));
    }
    if first.0.checked_add(count as u64).is_none() {
        return Err(DecodeError::NotCanonical("request number"));
    }
    let ops = Ops::from_buffer(ops).ok_or(DecodeError::NotCanonical("package"))?;
    Ok(Package { client, first, kind, replier, ops, digest, auth })
}

impl Encode for Package {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_authenticator(&self.auth, out);
        put_package_content(self, out);
    }
}

impl Decode for Package {
    /// Takes all that is left: a package stands alone or is an item of a list.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let auth = decode_authenticator(input)?;
        let (suite, content) = (input.suite(), input.take_rest());
        let digest = tercio_crypto::hash(suite, &[&content]);
        named_package(content, digest, auth, suite)
    }
}

/// How long a package is in a batch, the end in the list's index included.
#[must_use]
pub fn package_len(package: &Package) -> usize {
    4 + 3 + authenticator_len(&package.auth) + PACKAGE_HEAD + package.ops.buffer().len()
}

impl Encode for Batch {
    fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(8 + 1 + 4 + self.packages.iter().map(package_len).sum::<usize>());
        out.extend_from_slice(&self.time.0.to_le_bytes());
        out.push(self.checkpoint.into());
        list::encode(out, self.packages.len(), |i, out| self.packages[i].encode(out));
    }
}

impl Decode for Batch {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let time = Timestamp(input.u64("batch")?);
        let checkpoint = input.flag("checkpoint flag")?;
        let suite = input.suite();
        let items = list::List::decode(input, MAX_PACKAGES, "batch")?;
        let parts = |item: Bytes| {
            let mut input = Reader::new(item, suite);
            Ok((decode_authenticator(&mut input)?, input.take_rest()))
        };
        let parts: Vec<(Authenticator, Bytes)> =
            items.iter().map(parts).collect::<Result<_, DecodeError>>()?;
        // All packages' digests together: a batch is what takes most hashing.
        let contents = parts.iter().map(|(_, content)| content);
        let inputs: Vec<_> = contents.map(|body| HashInput { head: &[], body }).collect();
        let mut digests = Vec::with_capacity(parts.len());
        hash_many(suite, &inputs, &mut digests);
        let package = |((auth, content), digest)| named_package(content, digest, auth, suite);
        let packages = parts.into_iter().zip(digests).map(package).collect::<Result<_, _>>()?;
        Ok(Self { time, checkpoint, packages })
    }
}

impl Encode for BlockHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.suite.number());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.height.0.to_le_bytes());
        out.extend_from_slice(&self.seq.0.to_le_bytes());
        out.extend_from_slice(&self.parent.0);
        out.extend_from_slice(&self.body.0);
        out.extend_from_slice(&self.time.0.to_le_bytes());
        out.extend_from_slice(&self.ops.to_le_bytes());
        out.extend_from_slice(&self.lag.to_le_bytes());
        out.extend_from_slice(&self.results.0);
        out.extend_from_slice(&self.state.0);
    }
}

impl Decode for BlockHeader {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "block header";
        let number = input.u8(WHAT)?;
        let suite = Suite::from_number(number)
            .ok_or(DecodeError::Unknown { what: "suite", found: number.into() })?;
        Ok(Self {
            suite,
            epoch: Epoch(input.u64(WHAT)?),
            height: Height(input.u64(WHAT)?),
            seq: SeqNum(input.u64(WHAT)?),
            parent: input.digest(WHAT)?,
            body: input.digest(WHAT)?,
            time: Timestamp(input.u64(WHAT)?),
            ops: input.u32(WHAT)?,
            lag: input.u16(WHAT)?,
            results: input.digest(WHAT)?,
            state: input.digest(WHAT)?,
        })
    }
}

impl Encode for Checkpoint {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seq.0.to_le_bytes());
        out.extend_from_slice(&self.height.0.to_le_bytes());
        for digest in [self.block, self.results, self.state, self.clients, self.membership] {
            out.extend_from_slice(&digest.0);
        }
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.time.0.to_le_bytes());
    }
}

impl Decode for Checkpoint {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "checkpoint";
        Ok(Self {
            seq: SeqNum(input.u64(WHAT)?),
            height: Height(input.u64(WHAT)?),
            block: input.digest(WHAT)?,
            results: input.digest(WHAT)?,
            state: input.digest(WHAT)?,
            clients: input.digest(WHAT)?,
            membership: input.digest(WHAT)?,
            epoch: Epoch(input.u64(WHAT)?),
            time: Timestamp(input.u64(WHAT)?),
        })
    }
}

impl Encode for SignatureBytes {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.as_slice().len() as u16).to_le_bytes());
        out.extend_from_slice(self.as_slice());
    }
}

impl Decode for SignatureBytes {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let len = usize::from(input.u16("signature")?);
        signature(&input.take(len, "signature")?)
    }
}

/// `low: u64 | marks: 16 u64`.
impl Encode for RequestWindow {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.low().0.to_le_bytes());
        self.marks().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

impl Decode for RequestWindow {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let low = RequestSeq(input.u64("request window")?);
        let mut marks = *Self::default().marks();
        for word in &mut marks {
            *word = input.u64("request window")?;
        }
        Self::from_parts(low, marks).ok_or(DecodeError::NotCanonical("request window"))
    }
}

/// Appends replicas' signatures: `count: u32 | of each: replica: u16 | signature`.
pub(crate) fn put_signatures(signatures: &[(ReplicaId, SignatureBytes)], out: &mut Vec<u8>) {
    out.extend_from_slice(&(signatures.len() as u32).to_le_bytes());
    for (replica, signature) in signatures {
        out.extend_from_slice(&replica.0.to_le_bytes());
        signature.encode(out);
    }
}

/// Reads what [`put_signatures`] wrote; signers ascend.
pub(crate) fn take_signatures(
    input: &mut Reader,
    what: &'static str,
) -> Result<Vec<(ReplicaId, SignatureBytes)>, DecodeError> {
    let count = input.count(4, MAX_REPLICAS, what)?;
    let mut signatures: Vec<(ReplicaId, SignatureBytes)> = Vec::with_capacity(count);
    for _ in 0..count {
        let replica = ReplicaId(input.u16("signer")?);
        if signatures.last().is_some_and(|(last, _)| *last >= replica) {
            return Err(DecodeError::NotCanonical(what));
        }
        signatures.push((replica, SignatureBytes::decode(input)?));
    }
    Ok(signatures)
}

impl Encode for CertifiedCheckpoint {
    fn encode(&self, out: &mut Vec<u8>) {
        self.checkpoint.encode(out);
        put_signatures(&self.signatures, out);
    }
}

impl Decode for CertifiedCheckpoint {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let checkpoint = Checkpoint::decode(input)?;
        let signatures = take_signatures(input, "checkpoint signatures")?;
        Ok(Self { checkpoint, signatures })
    }
}

//! The bytes of requests and answers. A frame is a sequence of 64-bit little-endian words;
//! `docs/format-prism.md` has the layout word by word.
//!
//! Decoding is strict: unknown codes, flags that an operation does not have, reserved bits, lengths
//! that do not add up and padding that is not zero are refused before anything is run. The decoder
//! allocates nothing.

use crate::op::{
    Action, Addr, Capability, Cas, Deref, MAX_BODY, MAX_CAS_WORDS, MAX_DATA, MAX_OPS, Masks, Mode,
    Op, Operand, Payload, Reject, Source, Status,
};

/// The version of this format.
pub const VERSION: u8 = 1;
/// A request's header, in words.
pub const REQUEST_HEADER: usize = 5;
/// An answer's header, in words.
pub const ANSWER_HEADER: usize = 3;
/// The longest request, in words.
pub const MAX_REQUEST: usize = REQUEST_HEADER + MAX_BODY / 8;
/// The longest answer, in words: each result has a header, and its own padding.
pub const MAX_ANSWER: usize = ANSWER_HEADER + MAX_DATA / 8 + 2 * MAX_OPS;

/// What each frame begins with.
pub(crate) const MAGIC: u16 = 0x5250;

#[cfg(target_endian = "big")]
compile_error!("frames are read in place as little-endian words");

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Operations on memory.
    Ops = 0,
    /// A connection. The number of the request is the client's own choice of a nonce.
    Connect = 1,
    /// A call of the service that is registered under the capability.
    Call = 2,
    /// The end of the connection.
    Bye = 3,
    /// Turned down; in answers only.
    Rejected = 4,
}

/// What a request's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is asked for.
    pub kind: Kind,
    /// The connection; zero when asking for one.
    pub connection: u32,
    /// The request's number on its connection.
    pub number: u64,
    /// What opens the regions.
    pub capability: Capability,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who asks, and for what.
    pub header: Header,
    /// How many operations.
    pub count: usize,
    body: &'a [u64],
    answer_bytes: usize,
    mutates: bool,
}

mod code {
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const ALLOCATE: u8 = 3;
    pub(super) const CAS: u8 = 4;
    pub(super) const FETCH_ADD: u8 = 5;
}

mod flag {
    pub(super) const INDIRECT: u8 = 1;
    pub(super) const BOUNDED: u8 = 1 << 1;
    pub(super) const DATA_AT: u8 = 1 << 2;
    pub(super) const CONDITIONAL: u8 = 1 << 3;
    pub(super) const REDIRECT: u8 = 1 << 4;
    pub(super) const COMPARAND: u8 = 1 << 5;
    pub(super) const COMPARAND_AT: u8 = 1 << 6;
    pub(super) const LONG_MASKS: u8 = 1 << 7;
}

/// Appends a request's header; [`finish_request`] fills in the lengths.
pub fn begin_request(out: &mut Vec<u64>, header: &Header) {
    out.extend_from_slice(&[
        first_word(header.kind, header.connection),
        header.number,
        header.capability.0 as u64,
        (header.capability.0 >> 64) as u64,
        0,
    ]);
}

/// Fills in the lengths of the request that begins at `start` and ends with `out`.
///
/// # Errors
/// When it is longer than the limits allow; [`Request::decode`] would turn it down.
pub fn finish_request(out: &mut [u64], start: usize, ops: usize) -> Result<(), Reject> {
    let body = (out.len() - start - REQUEST_HEADER) * 8;
    if body > MAX_BODY || ops > MAX_OPS {
        return Err(Reject::TooLong);
    }
    out[start + 4] = body as u64 | (ops as u64) << 32;
    Ok(())
}

fn first_word(kind: Kind, connection: u32) -> u64 {
    u64::from(MAGIC) | u64::from(VERSION) << 16 | (kind as u64) << 24 | u64::from(connection) << 32
}

/// Appends an operation.
///
/// # Panics
/// When an operand of a compare-and-swap is not as long as the operation says.
pub fn put_op(out: &mut Vec<u64>, op: &Op<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0]);
    let mut flags = if op.conditional { flag::CONDITIONAL } else { 0 };
    let (code, mode, select, len, addr, aux);
    (mode, select, aux) = match op.action {
        Action::Read { addr: at, len: bytes, deref, redirect } => {
            (code, len, addr) = (code::READ, bytes, at);
            flags |= deref_flags(deref) | redirect.map_or(0, |_| flag::REDIRECT);
            (0, 0, redirect.unwrap_or_default())
        }
        Action::Write { addr: at, deref, source } => {
            (code, addr) = (code::WRITE, at);
            flags |= deref_flags(deref);
            match source {
                Source::Inline(data) => {
                    len = data.len() as u32;
                    out.extend_from_slice(data.words());
                    (0, 0, Addr::NULL)
                }
                Source::At(from, bytes) => {
                    len = bytes;
                    flags |= flag::DATA_AT;
                    (0, 0, from)
                }
            }
        }
        Action::Allocate { pool, data, redirect } => {
            (code, len, addr) = (code::ALLOCATE, data.len() as u32, Addr::NULL);
            flags |= redirect.map_or(0, |_| flag::REDIRECT);
            out.extend_from_slice(data.words());
            (0, pool, redirect.unwrap_or_default())
        }
        Action::Cas(cas) => {
            (code, len, addr) = (code::CAS, u32::from(cas.words) * 8, cas.target);
            flags |= if cas.indirect { flag::INDIRECT } else { 0 };
            let (more, select, aux) = put_cas(out, &cas);
            flags |= more;
            (cas.mode as u8, select, aux)
        }
        Action::FetchAdd { addr: at, indirect, addend } => {
            (code, len, addr) = (code::FETCH_ADD, 8, at);
            flags |= if indirect { flag::INDIRECT } else { 0 };
            out.push(addend);
            (0, 0, Addr::NULL)
        }
    };
    out[start] = u64::from(code)
        | u64::from(flags) << 8
        | u64::from(mode) << 16
        | u64::from(select) << 24
        | u64::from(len) << 32;
    out[start + 1] = addr.0;
    out[start + 2] = aux.0;
}

fn deref_flags(deref: Deref) -> u8 {
    match deref {
        Deref::Direct => 0,
        Deref::Indirect => flag::INDIRECT,
        Deref::Bounded => flag::INDIRECT | flag::BOUNDED,
    }
}

/// Appends a compare-and-swap's operands; gives its flags, word selection and data address.
fn put_cas(out: &mut Vec<u64>, cas: &Cas<'_>) -> (u8, u8, Addr) {
    let words = usize::from(cas.words);
    let (mut flags, mut select, mut aux) = (0, 0, Addr::NULL);
    let inline = |out: &mut Vec<u64>, operand: &[u64]| {
        assert_eq!(operand.len(), words, "an operand has as many words as its operation");
        out.extend_from_slice(operand);
    };
    match cas.data {
        Operand::Inline(data) => inline(out, data),
        Operand::At(addr) => (flags, aux) = (flag::DATA_AT, addr),
    }
    match cas.comparand {
        None => {}
        Some(Operand::Inline(comparand)) => {
            flags |= flag::COMPARAND;
            inline(out, comparand);
        }
        Some(Operand::At(addr)) => {
            flags |= flag::COMPARAND_AT;
            out.push(addr.0);
        }
    }
    match cas.masks {
        Masks::Words { compare, swap } => select = compare & 0xf | swap << 4,
        Masks::Bits { compare, swap } => {
            flags |= flag::LONG_MASKS;
            inline(out, compare);
            inline(out, swap);
        }
    }
    (flags, select, aux)
}

impl<'a> Request<'a> {
    /// Reads a request out of a frame, wholly checked.
    ///
    /// # Errors
    /// Why it is none, with what of the header could be read, so that it can be answered.
    #[inline(always)]
    pub fn decode(frame: &'a [u64]) -> Result<Self, (Reject, Option<Header>)> {
        let Some((head, body)) = frame.split_first_chunk::<REQUEST_HEADER>() else {
            return Err((Reject::Malformed, None));
        };
        if head[0] as u16 != MAGIC {
            return Err((Reject::Malformed, None));
        }
        let kind = match (head[0] >> 24) as u8 {
            0 => Kind::Ops,
            1 => Kind::Connect,
            2 => Kind::Call,
            3 => Kind::Bye,
            _ => return Err((Reject::Malformed, None)),
        };
        let capability = Capability(u128::from(head[2]) | u128::from(head[3]) << 64);
        let connection = (head[0] >> 32) as u32;
        let header = Header { kind, connection, number: head[1], capability };
        let reject = |reject| Err((reject, Some(header)));
        if (head[0] >> 16) as u8 != VERSION {
            return reject(Reject::Version);
        }
        let (bytes, count) = (head[4] as u32 as usize, (head[4] >> 32) as usize);
        if bytes > MAX_BODY || count > MAX_OPS {
            return reject(Reject::TooLong);
        }
        if bytes != body.len() * 8 || (count > 0 && kind != Kind::Ops) {
            return reject(Reject::Malformed);
        }
        let mut request = Self { header, count, body, answer_bytes: 0, mutates: false };
        if kind == Kind::Ops {
            let mut rest = body;
            for _ in 0..count {
                let Some(op) = take_op(&mut rest) else { return reject(Reject::Malformed) };
                request.answer_bytes += op.answer_bytes();
                request.mutates |= op.mutates();
            }
            if !rest.is_empty() || count == 0 {
                return reject(Reject::Malformed);
            }
            if request.answer_bytes > MAX_DATA {
                return reject(Reject::TooLong);
            }
        } else if kind != Kind::Call && !body.is_empty() {
            return reject(Reject::Malformed);
        }
        Ok(request)
    }

    /// The operations, in order.
    #[inline(always)]
    pub fn ops(&self) -> impl Iterator<Item = Op<'a>> + use<'a> {
        // Decoding has checked that they, and nothing else, are the body.
        let mut rest = if self.count > 0 { self.body } else { &[] };
        std::iter::from_fn(move || take_op(&mut rest))
    }

    /// The most bytes that its operations answer with together.
    #[must_use]
    pub const fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Whether running its operations twice could differ from running them once.
    #[must_use]
    pub const fn mutates(&self) -> bool {
        self.mutates
    }

    /// What a call carries: words whose meaning is the service's.
    #[must_use]
    pub fn body(&self) -> &'a [u64] {
        self.body
    }
}

/// The operations that a request begins with, as far as they can be read, without any check of the
/// request: to see what it will need.
#[inline(always)]
pub(crate) fn glance<'a>(frame: &'a [u64]) -> impl Iterator<Item = Op<'a>> + use<'a> {
    let (head, mut rest) = frame.split_first_chunk::<REQUEST_HEADER>().unwrap_or((&[0; 5], &[]));
    let count = (head[4] >> 32) as usize;
    (0..count.min(MAX_OPS)).map_while(move |_| take_op(&mut rest))
}

/// The length that a request's header states, in words, for streams of frames.
///
/// # Errors
/// When no request begins so; the stream cannot be followed further.
pub fn request_words(head: &[u64; REQUEST_HEADER]) -> Result<usize, Reject> {
    stated_words(head[0], head[4], MAX_BODY).map(|words| REQUEST_HEADER + words)
}

/// The length that an answer's header states, in words, for streams of frames.
///
/// # Errors
/// When no answer begins so; the stream cannot be followed further.
pub fn answer_words(head: &[u64; ANSWER_HEADER]) -> Result<usize, Reject> {
    stated_words(head[0], head[2], (MAX_ANSWER - ANSWER_HEADER) * 8)
        .map(|words| ANSWER_HEADER + words)
}

fn stated_words(first: u64, lengths: u64, limit: usize) -> Result<usize, Reject> {
    let bytes = lengths as u32 as usize;
    if first as u16 != MAGIC || !bytes.is_multiple_of(8) {
        return Err(Reject::Malformed);
    }
    if bytes > limit { Err(Reject::TooLong) } else { Ok(bytes / 8) }
}

/// Takes one operation off the front. `None` when there is none, wholly and in its one form.
#[inline(always)]
fn take_op<'a>(rest: &mut &'a [u64]) -> Option<Op<'a>> {
    let (head, mut body) = rest.split_first_chunk::<3>()?;
    let (code, flags) = (head[0] as u8, (head[0] >> 8) as u8);
    let (mode, select, len) =
        ((head[0] >> 16) as u8, (head[0] >> 24) as u8, (head[0] >> 32) as u32);
    let (addr, aux) = (Addr(head[1]), Addr(head[2]));
    let has = |bit: u8| flags & bit != 0;
    let deref = match (has(flag::INDIRECT), has(flag::BOUNDED)) {
        (false, false) => Deref::Direct,
        (true, false) => Deref::Indirect,
        (true, true) => Deref::Bounded,
        (false, true) => return None,
    };
    let redirect = has(flag::REDIRECT).then_some(aux);
    let only = |allowed: u8| flags & !(allowed | flag::CONDITIONAL) == 0;
    let sized = len > 0 && len as usize <= MAX_DATA;
    let deref_flags = flag::INDIRECT | flag::BOUNDED;
    let op = |action| Some(Op { conditional: has(flag::CONDITIONAL), action });
    // What an operation does not use must be zero. Each is made where it will stay, see `exec` on
    // copies.
    match code {
        code::READ if only(deref_flags | flag::REDIRECT) && sized && mode == 0 && select == 0 => {
            if redirect.is_none() && !aux.is_null() {
                return None;
            }
            *rest = body;
            op(Action::Read { addr, len, deref, redirect })
        }
        code::WRITE if only(deref_flags | flag::DATA_AT) && sized && mode == 0 && select == 0 => {
            let source = if has(flag::DATA_AT) {
                Source::At(aux, len)
            } else if aux.is_null() {
                Source::Inline(take_payload(&mut body, len as usize)?)
            } else {
                return None;
            };
            *rest = body;
            op(Action::Write { addr, deref, source })
        }
        code::ALLOCATE if only(flag::REDIRECT) && sized && mode == 0 && addr.is_null() => {
            if redirect.is_none() && !aux.is_null() {
                return None;
            }
            let data = take_payload(&mut body, len as usize)?;
            *rest = body;
            op(Action::Allocate { pool: select, data, redirect })
        }
        code::CAS if !has(flag::BOUNDED | flag::REDIRECT) => {
            let cas = take_cas(&mut body, flags, mode, select, len, addr, aux)?;
            *rest = body;
            op(Action::Cas(cas))
        }
        code::FETCH_ADD if only(flag::INDIRECT) && len == 8 && mode == 0 && select == 0 => {
            if !aux.is_null() {
                return None;
            }
            let addend = take(&mut body, 1)?[0];
            *rest = body;
            op(Action::FetchAdd { addr, indirect: has(flag::INDIRECT), addend })
        }
        _ => None,
    }
}

fn take_cas<'a>(
    body: &mut &'a [u64],
    flags: u8,
    mode: u8,
    select: u8,
    len: u32,
    target: Addr,
    aux: Addr,
) -> Option<Cas<'a>> {
    let has = |bit: u8| flags & bit != 0;
    let words = len as usize / 8;
    if !len.is_multiple_of(8) || !(1..=MAX_CAS_WORDS).contains(&words) {
        return None;
    }
    let mode = [Mode::Equal, Mode::Greater, Mode::Less].get(usize::from(mode)).copied()?;
    let data = match has(flag::DATA_AT) {
        true => Operand::At(aux),
        false if aux.is_null() => Operand::Inline(take(body, words)?),
        false => return None,
    };
    let comparand = match (has(flag::COMPARAND), has(flag::COMPARAND_AT)) {
        (false, false) => None,
        (true, false) => Some(Operand::Inline(take(body, words)?)),
        (false, true) => Some(Operand::At(Addr(take(body, 1)?[0]))),
        (true, true) => return None,
    };
    let masks = if has(flag::LONG_MASKS) {
        let (compare, swap) = (take(body, words)?, take(body, words)?);
        // An order is one of whole words.
        let whole = compare.iter().all(|mask| matches!(*mask, 0 | u64::MAX));
        if select != 0 || (mode != Mode::Equal && !whole) {
            return None;
        }
        Masks::Bits { compare, swap }
    } else {
        let (compare, swap) = (select & 0xf, select >> 4);
        if (compare | swap) >> words != 0 {
            return None;
        }
        Masks::Words { compare, swap }
    };
    let indirect = has(flag::INDIRECT);
    Some(Cas { mode, target, indirect, words: words as u8, data, comparand, masks })
}

fn take<'a>(body: &mut &'a [u64], words: usize) -> Option<&'a [u64]> {
    let (taken, rest) = body.split_at_checked(words)?;
    *body = rest;
    Some(taken)
}

fn take_payload<'a>(body: &mut &'a [u64], bytes: usize) -> Option<Payload<'a>> {
    Payload::new(take(body, bytes.div_ceil(8))?, bytes)
}

/// Writes an answer to the end of a buffer.
#[derive(Debug)]
pub struct AnswerWriter<'a> {
    out: &'a mut Vec<u64>,
    start: usize,
    count: usize,
}

impl<'a> AnswerWriter<'a> {
    /// Begins the answer to a request.
    pub fn begin(out: &'a mut Vec<u64>, kind: Kind, connection: u32, number: u64) -> Self {
        let start = out.len();
        out.extend_from_slice(&[first_word(kind, connection), number, 0]);
        Self { out, start, count: 0 }
    }

    /// The result of the next operation: its status, and the bytes that `data` appends and counts.
    #[inline]
    pub fn result(&mut self, data: impl FnOnce(&mut Vec<u64>) -> (Status, usize)) -> Status {
        let at = self.out.len();
        self.out.push(0);
        let (status, bytes) = data(self.out);
        assert_eq!(self.out.len(), at + 1 + bytes.div_ceil(8), "a result is as long as it says");
        self.out[at] = status as u64 | (bytes as u64) << 32;
        self.count += 1;
        status
    }

    /// The words of the answer to a call.
    pub fn body(&mut self) -> &mut Vec<u64> {
        self.out
    }

    /// Takes back what was written and rejects the request.
    pub fn reject(self, connection: u32, number: u64, why: Reject) {
        self.out.truncate(self.start);
        self.out.extend([first_word(Kind::Rejected, connection), number, (why as u64) << 40]);
    }

    /// Fills in the lengths.
    pub fn finish(self) {
        let bytes = (self.out.len() - self.start - ANSWER_HEADER) * 8;
        self.out[self.start + 2] = bytes as u64 | (self.count as u64) << 32;
    }
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// What it answers, or [`Kind::Rejected`].
    pub kind: Kind,
    /// The connection; the new one's number in the answer to [`Kind::Connect`].
    pub connection: u32,
    /// The request's number.
    pub number: u64,
    /// Why the request was turned down.
    pub rejected: Option<Reject>,
    pub(crate) count: usize,
    pub(crate) body: &'a [u64],
}

/// How one operation ended and what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// How it ended.
    pub status: Status,
    /// What it gave.
    pub data: Payload<'a>,
}

impl<'a> Answer<'a> {
    /// Reads an answer out of a frame, wholly checked. `None` when it is none.
    #[must_use]
    pub fn decode(frame: &'a [u64]) -> Option<Self> {
        let (head, body) = frame.split_first_chunk::<ANSWER_HEADER>()?;
        if head[0] as u16 != MAGIC || (head[0] >> 16) as u8 != VERSION {
            return None;
        }
        let kind = match (head[0] >> 24) as u8 {
            0 => Kind::Ops,
            1 => Kind::Connect,
            2 => Kind::Call,
            3 => Kind::Bye,
            4 => Kind::Rejected,
            _ => return None,
        };
        let (bytes, count) = (head[2] as u32 as usize, usize::from((head[2] >> 32) as u8));
        let why = (head[2] >> 40) as u8;
        let rejected = Reject::of_number(why);
        let well_formed = bytes == body.len() * 8
            && head[2] >> 48 == 0
            && rejected.is_some() == (kind == Kind::Rejected)
            && (rejected.is_some() || why == 0)
            && (count == 0 || kind == Kind::Ops)
            && count <= MAX_OPS;
        let (connection, number) = ((head[0] >> 32) as u32, head[1]);
        let answer = Self { kind, connection, number, rejected, count, body };
        let mut rest = body;
        for _ in 0..count {
            take_outcome(&mut rest)?;
        }
        (well_formed && (rest.is_empty() || kind == Kind::Call)).then_some(answer)
    }

    /// How the operations ended, in order.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'a>> + use<'a> {
        let mut rest = self.body;
        (0..self.count).map(move |_| take_outcome(&mut rest).expect("decoding has checked them"))
    }

    /// The outcomes of exactly `N` operations. `None` when there are more or fewer.
    #[must_use]
    pub fn take<const N: usize>(&self) -> Option<[Outcome<'a>; N]> {
        let mut outcomes = self.outcomes();
        let taken = std::array::from_fn(|_| outcomes.next());
        if self.count != N || taken.iter().any(Option::is_none) {
            return None;
        }
        Some(taken.map(|outcome| outcome.expect("looked at just now")))
    }

    /// The words of the answer to a call.
    #[must_use]
    pub fn body(&self) -> &'a [u64] {
        self.body
    }
}

fn take_outcome<'a>(rest: &mut &'a [u64]) -> Option<Outcome<'a>> {
    let head = take(rest, 1)?[0];
    let status = Status::of_number(head as u8)?;
    if head as u32 >> 8 != 0 {
        return None;
    }
    let data = take_payload(rest, (head >> 32) as usize)?;
    Some(Outcome { status, data })
}

//! What clients ask for and what they get.

use crate::Account;

/// An operation of a client. Accounts are named by numbers; amounts are whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens an account without money for the client; answered by [`Outcome::Opened`].
    Open {
        /// Its number, which must be free.
        account: u64,
    },
    /// Brings new money into an account. Only the issuer of the settings may; answered by
    /// [`Outcome::Deposited`].
    Deposit {
        /// The account that receives it.
        account: u64,
        /// How much; positive.
        amount: u64,
    },
    /// Moves money out of an account of the client; answered by [`Outcome::Transferred`].
    Transfer {
        /// The account that pays.
        from: u64,
        /// The account that receives.
        to: u64,
        /// How much; positive.
        amount: u64,
    },
    /// Reads an account; answered by [`Outcome::Account`]. The query of the same bytes is answered
    /// without being ordered.
    Balance {
        /// The account.
        account: u64,
    },
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Refused; nothing was changed.
    Rejected(Reject),
    /// The account is there and belongs to the client.
    Opened,
    /// The deposit was booked.
    Deposited {
        /// The account's balance afterwards.
        balance: u64,
    },
    /// The transfer was booked.
    Transferred {
        /// The balance of the account that paid, afterwards.
        left: u64,
    },
    /// The account as it is.
    Account(Account),
}

tercio_execution::reasons! {
    /// Why a command was refused.
    pub enum Reject {
        /// The first byte names no operation.
        UnknownOperation = 1, "unknown operation type";
        /// The bytes end inside the command.
        Truncated = 2, "the bytes end inside the command";
        /// Bytes are left after the command.
        TrailingBytes = 3, "bytes are left after the command";
        /// The amount is zero.
        InvalidAmount = 4, "the amount must be positive";
        /// The account is not open.
        UnknownAccount = 5, "unknown account";
        /// An account of this number is open.
        AccountExists = 6, "an account with this number is open";
        /// The account belongs to another client.
        NotOwner = 7, "the account belongs to another client";
        /// Only the issuer may deposit.
        NotIssuer = 8, "only the issuer may deposit";
        /// The account has less than the amount.
        InsufficientFunds = 9, "insufficient funds";
        /// The receiver's balance would exceed 64 bits.
        Overflow = 10, "the receiver's balance would overflow";
    }
}

//! The rules: what each command does to books and accounts.

use crate::accounts::Accounts;
use crate::book::Book;
use crate::settings::MAX_SUPPLY;
use crate::state::StateTree;
use crate::{Command, Fill, Outcome, Reject, Settings, SettingsError, Side};
use bytes::Bytes;
use tercio_types::ClientId;

/// The exchange: every market's book and every account. See `docs/exchange.md` for the rules.
#[derive(Clone)]
pub struct Exchange {
    pub(crate) settings: Settings,
    pub(crate) accounts: Accounts,
    pub(crate) books: Vec<Book>,
    /// What was deposited of each asset.
    pub(crate) deposits: Vec<u128>,
    pub(crate) tree: StateTree,
}

/// A limit order on its way in, its numbers checked.
struct Taker {
    account: u32,
    id: u64,
    side: Side,
    price: u64,
    quantity: u64,
}

impl Exchange {
    /// An exchange without orders or accounts.
    ///
    /// # Errors
    /// When the settings make no exchange.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        let assets = settings.assets();
        Ok(Self {
            accounts: Accounts::new(assets, settings.credit),
            books: settings.symbols.iter().map(Book::new).collect(),
            deposits: vec![0; assets],
            tree: StateTree::default(),
            settings,
        })
    }

    /// The rules that it runs under.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Executes a command from its bytes.
    pub fn apply_bytes(&mut self, client: ClientId, bytes: &Bytes) -> Outcome {
        match Command::parse(bytes) {
            Ok(command) => self.apply(client, &command),
            Err(reason) => Outcome::Rejected(reason),
        }
    }

    /// Executes a command of `client`. A rejected one changes nothing.
    pub fn apply(&mut self, client: ClientId, command: &Command) -> Outcome {
        let outcome = match *command {
            Command::Limit { symbol, id, side, price, quantity } => {
                self.limit(client, symbol, id, side, price, quantity)
            }
            Command::Cancel { symbol, id } => self.reduce(client, symbol, id, 0),
            Command::Reduce { symbol, id, quantity } => self.reduce(client, symbol, id, quantity),
            Command::Deposit { account, asset, amount } => {
                self.deposit(client, ClientId(account), asset, amount)
            }
        };
        outcome.unwrap_or_else(Outcome::Rejected)
    }

    fn limit(
        &mut self,
        client: ClientId,
        symbol: u16,
        id: u64,
        side: Side,
        price: i64,
        quantity: i64,
    ) -> Result<Outcome, Reject> {
        let book = self.books.get_mut(usize::from(symbol)).ok_or(Reject::UnknownSymbol)?;
        if price <= 0 {
            return Err(Reject::InvalidPrice);
        }
        if quantity <= 0 {
            return Err(Reject::InvalidQuantity);
        }
        price.checked_mul(quantity).ok_or(Reject::ValueOverflow)?;
        let (price, quantity) = (price as u64, quantity as u64);
        if book.find(id).is_some() {
            return Err(Reject::DuplicateOrder);
        }
        if book.slots.len() >= self.settings.max_book_orders {
            return Err(Reject::BookFull);
        }
        let (asset, cost) = book.cost(side, price, quantity);
        let found = self.accounts.find(client);
        if found.is_some_and(|a| self.accounts.get(a).open >= self.settings.max_open_orders) {
            return Err(Reject::TooManyOpenOrders);
        }
        let free = found.map_or(self.settings.credit, |a| self.accounts.balance(a, asset).free);
        if free < cost {
            return Err(Reject::InsufficientBalance);
        }
        let account = self.account(client)?;
        let book = &mut self.books[usize::from(symbol)];
        let taker = Taker { account, id, side, price, quantity };
        let max_fills = self.settings.max_fills as usize;
        Ok(place(&mut self.accounts, book, &taker, max_fills))
    }

    /// The client's account, opened when there is none.
    fn account(&mut self, client: ClientId) -> Result<u32, Reject> {
        if let Some(account) = self.accounts.find(client) {
            return Ok(account);
        }
        if self.accounts.len() >= self.settings.max_accounts as usize {
            return Err(Reject::TooManyAccounts);
        }
        Ok(self.accounts.open(client).expect("the client had no account"))
    }

    fn reduce(
        &mut self,
        client: ClientId,
        symbol: u16,
        id: u64,
        quantity: i64,
    ) -> Result<Outcome, Reject> {
        let book = self.books.get_mut(usize::from(symbol)).ok_or(Reject::UnknownSymbol)?;
        let slot = book.find(id).ok_or(Reject::UnknownOrder)?;
        let order = *book.slots.get(slot);
        if self.accounts.get(order.account).client != client {
            return Err(Reject::NotOwner);
        }
        book.revision += 1;
        book.meta_dirty = true;
        let target = order.remaining.min(quantity.max(0) as u64);
        let released = order.remaining - target;
        let (asset, cost) = book.cost(order.side, order.price, released);
        self.accounts.release(order.account, asset, cost);
        if target == 0 {
            book.remove(slot);
            self.accounts.order_gone(order.account);
            return Ok(Outcome::Cancelled { quantity: released });
        }
        if released > 0 {
            book.shrink(slot, released);
        }
        Ok(Outcome::Reduced { remaining: target })
    }

    fn deposit(
        &mut self,
        client: ClientId,
        receiver: ClientId,
        asset: u16,
        amount: i128,
    ) -> Result<Outcome, Reject> {
        if self.settings.operator != Some(client) {
            return Err(Reject::NotOperator);
        }
        let sum = *self.deposits.get(usize::from(asset)).ok_or(Reject::UnknownAsset)?;
        let amount = match u128::try_from(amount) {
            Ok(amount) if amount > 0 => amount,
            _ => return Err(Reject::InvalidAmount),
        };
        let sum = match sum.checked_add(amount) {
            Some(sum) if sum <= MAX_SUPPLY => sum,
            _ => return Err(Reject::BalanceOverflow),
        };
        let account = self.account(receiver)?;
        self.deposits[usize::from(asset)] = sum;
        self.tree.general_changed();
        self.accounts.add(account, asset, amount);
        Ok(Outcome::Deposited { free: self.accounts.balance(account, asset).free })
    }

    /// Every asset's sum over all accounts beside what it must be: credit and deposits.
    #[must_use]
    pub fn supplies(&self) -> Vec<(u128, u128)> {
        let credit = self.settings.credit * self.accounts.len() as u128;
        let total = |asset: usize| self.accounts.total(asset as u16).expect("below 2^121");
        self.deposits.iter().enumerate().map(|(a, &sum)| (total(a), credit + sum)).collect()
    }
}

/// Trades an order against the other side, best price first and oldest order first at a price,
/// each at the resting order's price; lets the rest rest.
fn place(accounts: &mut Accounts, book: &mut Book, taker: &Taker, max_fills: usize) -> Outcome {
    book.revision += 1;
    book.meta_dirty = true;
    let crosses = |best: u64| match taker.side {
        Side::Bid => best <= taker.price,
        Side::Ask => best >= taker.price,
    };
    let mut remaining = taker.quantity;
    let mut dropped = 0;
    let mut fills = Vec::new();
    while remaining > 0 {
        let Some((price, slot)) = book.best(taker.side.opposite()) else { break };
        if !crosses(price) {
            break;
        }
        if fills.len() == max_fills {
            // Resting here would cross the book.
            dropped = std::mem::take(&mut remaining);
            break;
        }
        let maker = *book.slots.get(slot);
        let quantity = remaining.min(maker.remaining);
        remaining -= quantity;
        if quantity == maker.remaining {
            book.remove(slot);
            accounts.order_gone(maker.account);
        } else {
            book.shrink(slot, quantity);
        }
        settle(accounts, book, taker, maker.account, price, quantity);
        let trade = book.record(taker.id, maker.id, price, quantity, taker.side);
        fills.push(Fill { trade, maker: maker.id, price, quantity });
    }
    if remaining > 0 {
        let (asset, cost) = book.cost(taker.side, taker.price, remaining);
        accounts.hold(taker.account, asset, cost);
        accounts.order_rests(taker.account);
        book.rest(taker.account, taker.id, taker.side, taker.price, remaining);
    }
    Outcome::Placed { remaining, dropped, fills }
}

/// Moves the two assets of a trade. The taker pays from what is free (its whole order was checked
/// against that), the maker from what is held. Both may be one account.
fn settle(
    accounts: &mut Accounts,
    book: &Book,
    taker: &Taker,
    maker: u32,
    price: u64,
    quantity: u64,
) {
    let (paid, amount) = book.cost(taker.side, price, quantity);
    accounts.spend(taker.account, paid, amount);
    accounts.add(maker, paid, amount);
    let (received, amount) = book.cost(taker.side.opposite(), price, quantity);
    accounts.spend_held(maker, received, amount);
    accounts.add(taker.account, received, amount);
}

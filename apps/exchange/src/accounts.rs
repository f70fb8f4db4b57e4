//! Accounts: free and held balances of every asset.

use crate::dirty::DirtyPages;
use std::collections::BTreeMap;
use tercio_types::ClientId;

/// How many accounts make a chunk of the state.
pub(crate) const ACCOUNTS_PER_PAGE: u32 = 8;

/// An account's part of one asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    /// What it can spend.
    pub(crate) free: u128,
    /// What its resting orders stand for. Follows from them, so it is not in the snapshot.
    pub(crate) held: u128,
}

#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) client: ClientId,
    /// How many orders it has resting.
    pub(crate) open: u32,
}

/// All accounts, numbered in the order in which they were opened. None is ever closed, so the
/// number is good forever.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    assets: usize,
    credit: u128,
    accounts: Vec<Account>,
    /// One row of `assets` entries an account.
    balances: Vec<Balance>,
    by_client: BTreeMap<ClientId, u32>,
    pub(crate) dirty: DirtyPages,
}

impl Accounts {
    pub(crate) fn new(assets: usize, credit: u128) -> Self {
        Self {
            assets,
            credit,
            accounts: Vec::new(),
            balances: Vec::new(),
            by_client: BTreeMap::new(),
            dirty: DirtyPages::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.accounts.len()
    }

    pub(crate) fn pages(&self) -> u32 {
        self.accounts.len().div_ceil(ACCOUNTS_PER_PAGE as usize) as u32
    }

    pub(crate) fn find(&self, client: ClientId) -> Option<u32> {
        self.by_client.get(&client).copied()
    }

    pub(crate) fn get(&self, account: u32) -> &Account {
        &self.accounts[account as usize]
    }

    /// Opens an account with the credit; `None` when the client has one.
    pub(crate) fn open(&mut self, client: ClientId) -> Option<u32> {
        let account = self.accounts.len() as u32;
        if self.by_client.insert(client, account).is_some() {
            return None;
        }
        self.accounts.push(Account { client, open: 0 });
        let row = self.balances.len() + self.assets;
        self.balances.resize(row, Balance { free: self.credit, held: 0 });
        self.touch(account);
        Some(account)
    }

    /// The balances of an account, one an asset.
    pub(crate) fn row(&self, account: u32) -> &[Balance] {
        &self.balances[account as usize * self.assets..][..self.assets]
    }

    pub(crate) fn balance(&self, account: u32, asset: u16) -> Balance {
        self.row(account)[usize::from(asset)]
    }

    fn touch(&mut self, account: u32) {
        self.dirty.mark(account / ACCOUNTS_PER_PAGE);
    }

    fn balance_mut(&mut self, account: u32, asset: u16) -> &mut Balance {
        self.touch(account);
        &mut self.balances[account as usize * self.assets + usize::from(asset)]
    }

    /// Adds to what is free.
    pub(crate) fn add(&mut self, account: u32, asset: u16, amount: u128) {
        self.balance_mut(account, asset).free += amount;
    }

    /// Takes from what is free.
    pub(crate) fn spend(&mut self, account: u32, asset: u16, amount: u128) {
        let balance = self.balance_mut(account, asset);
        assert!(balance.free >= amount, "an order is checked against its account first");
        balance.free -= amount;
    }

    /// Takes from what is held.
    pub(crate) fn spend_held(&mut self, account: u32, asset: u16, amount: u128) {
        let balance = self.balance_mut(account, asset);
        assert!(balance.held >= amount, "what rests is held");
        balance.held -= amount;
    }

    /// Moves from free to held.
    pub(crate) fn hold(&mut self, account: u32, asset: u16, amount: u128) {
        self.spend(account, asset, amount);
        self.hold_again(account, asset, amount);
    }

    /// Adds to what is held: what [`Self::hold`] once moved and a snapshot leaves out.
    pub(crate) fn hold_again(&mut self, account: u32, asset: u16, amount: u128) {
        self.balance_mut(account, asset).held += amount;
    }

    /// Moves from held to free.
    pub(crate) fn release(&mut self, account: u32, asset: u16, amount: u128) {
        self.spend_held(account, asset, amount);
        self.add(account, asset, amount);
    }

    /// Sets what is free; for a snapshot.
    pub(crate) fn set_free(&mut self, account: u32, asset: u16, free: u128) {
        self.balance_mut(account, asset).free = free;
    }

    pub(crate) fn order_rests(&mut self, account: u32) {
        self.accounts[account as usize].open += 1;
    }

    pub(crate) fn order_gone(&mut self, account: u32) {
        self.accounts[account as usize].open -= 1;
    }

    /// The sum of an asset over all accounts, held or free.
    pub(crate) fn total(&self, asset: u16) -> Option<u128> {
        self.balances
            .iter()
            .skip(usize::from(asset))
            .step_by(self.assets)
            .try_fold(0u128, |sum, b| sum.checked_add(b.free)?.checked_add(b.held))
    }
}

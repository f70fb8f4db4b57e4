//! Which pages changed since the last digest.

/// A set of page numbers; adding one costs a look at a flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtyPages {
    flags: Vec<bool>,
    pages: Vec<u32>,
}

impl DirtyPages {
    pub(crate) fn mark(&mut self, page: u32) {
        let i = page as usize;
        if i >= self.flags.len() {
            self.flags.resize(i + 1, false);
        }
        if !self.flags[i] {
            self.flags[i] = true;
            self.pages.push(page);
        }
    }

    /// Takes the set, which is empty afterwards.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        for &page in &self.pages {
            self.flags[page as usize] = false;
        }
        std::mem::take(&mut self.pages)
    }
}

/// Values by number, in pages that never move: growing copies nothing, and at most one page is
/// unused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    pages: Vec<Box<Page<T>>>,
    /// The first of a linked list of vacant numbers.
    vacant: u32,
    len: usize,
}

type Page<T> = [Place<T>; PAGE];

const PAGE: usize = 64;

/// The end of the list of vacant numbers.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Place<T> {
    Vacant { next: u32 },
    Held(T),
}

impl<T> Slab<T> {
    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is more than one page.
    pub(super) fn has_many_pages(&self) -> bool {
        self.pages.len() > 1
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        match &self.pages.get(at / PAGE)?[at % PAGE] {
            Place::Held(held) => Some(held),
            Place::Vacant { .. } => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        match self.place(at)? {
            Place::Held(held) => Some(held),
            Place::Vacant { .. } => None,
        }
    }

    /// Stores a value under a vacant number, and returns the number.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if self.vacant == NONE {
            self.add_page();
        }
        let at = self.vacant;
        let place = self.place(at).expect("a vacant place is of a page");
        if let Place::Vacant { next } = std::mem::replace(place, Place::Held(value)) {
            self.vacant = next;
        }
        self.len += 1;
        at
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let next = self.vacant;
        let place = self.place(at)?;
        match std::mem::replace(place, Place::Vacant { next }) {
            Place::Held(held) => {
                self.vacant = at;
                self.len -= 1;
                Some(held)
            }
            vacant @ Place::Vacant { .. } => {
                *place = vacant;
                None
            }
        }
    }

    fn place(&mut self, at: u32) -> Option<&mut Place<T>> {
        let at = at as usize;
        Some(&mut self.pages.get_mut(at / PAGE)?[at % PAGE])
    }

    fn add_page(&mut self) {
        let first = self.pages.len() * PAGE;
        let number = |at| u32::try_from(at).expect("fewer than four billion keys");
        let next = |at: usize| match at + 1 {
            PAGE => NONE,
            next => number(first + next),
        };
        let page = std::array::from_fn(|at| Place::Vacant { next: next(at) });
        self.pages.push(Box::new(page));
        self.vacant = number(first);
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            vacant: NONE,
            len: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slots = Slab::default();
        for thing in 0..200_u32 {
            assert_eq!(slots.insert(thing), thing);
        }
        assert_eq!(slots.remove(70), Some(70));
        assert_eq!(slots.remove(7), Some(7));
        assert_eq!(slots.remove(7), None, "it is gone");
        assert_eq!((slots.get(7), slots.len()), (None, 198));
        assert_eq!(slots.insert(300), 7);
        assert_eq!(slots.insert(301), 70);
        assert_eq!(slots.insert(302), 200);
        assert_eq!(slots.get(7), Some(&300));
        assert_eq!(slots.get_mut(199), Some(&mut 199));
        assert_eq!(slots.get(100_000), None);
        assert_eq!(slots.pages.len(), 4);
    }

    #[test]
    fn a_vacant_place_takes_no_more() {
        assert_eq!(size_of::<Place<Box<str>>>(), size_of::<Box<str>>());
    }
}

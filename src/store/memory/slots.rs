/// Things at numbers, in pages that are never moved: growing copies nothing, and no more than a page is empty.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pages: Vec<Box<Page<T>>>,
    /// The first of a list of those without a thing.
    vacant: u32,
    held: usize,
}

type Page<T> = [Place<T>; PAGE];

const PAGE: usize = 64;

/// The end of the list.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Place<T> {
    Vacant { next: u32 },
    Held(T),
}

impl<T> Slots<T> {
    /// How many there are.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether there is room for more than few.
    pub(super) fn are_many(&self) -> bool {
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

    /// The number is that of one that was removed, or the next.
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        if self.vacant == NONE {
            self.add_page();
        }
        let at = self.vacant;
        let place = self.place(at).expect("a vacant place is of a page");
        if let Place::Vacant { next } = std::mem::replace(place, Place::Held(thing)) {
            self.vacant = next;
        }
        self.held += 1;
        at
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let next = self.vacant;
        let place = self.place(at)?;
        match std::mem::replace(place, Place::Vacant { next }) {
            Place::Held(held) => {
                self.vacant = at;
                self.held -= 1;
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

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            vacant: NONE,
            held: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slots = Slots::default();
        for thing in 0..200_u32 {
            assert_eq!(slots.insert(thing), thing);
        }
        assert_eq!(slots.remove(70), Some(70));
        assert_eq!(slots.remove(7), Some(7));
        assert_eq!(slots.remove(7), None, "it is gone");
        assert_eq!((slots.get(7), slots.held()), (None, 198));
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

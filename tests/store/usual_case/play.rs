//! Scripts that run on a real server, several of them in one call: `play.lua` plays a history.

use std::cell::RefCell;

use crate::prelude::*;

/// The file of an algorithm.
pub(super) fn file(algorithm: Algorithm) -> String {
    format!("{}.lua", algorithm.name().replace('-', "_"))
}

/// A server that plays histories.
pub(super) struct Player {
    algorithm: Algorithm,
    connection: RefCell<redis::Connection>,
}

/// What plays histories with one text of a script of takes.
pub(super) struct Play {
    script: redis::Script,
}

impl Player {
    pub(super) fn new(server: &Redis, algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            connection: RefCell::new(server.connection()),
        }
    }

    /// In so many worlds: in the first one all calls have the usual case, in the second one none,
    /// and in the third one some.
    pub(super) fn play_of(&self, take: &str, worlds: usize) -> Play {
        let file = file(self.algorithm);
        let tells_held = self.algorithm == Algorithm::Gcra;
        let quota_size = 7 * match self.algorithm {
            Algorithm::Gcra => 6,
            Algorithm::SlidingWindow => 3,
            _ => 2,
        };
        let function =
            |name: &str, text: &str| format!("local function {name}(KEYS, ARGV)\n{text}\nend\n");
        let text = [
            function("take", take),
            function("general_take", &kit::script(&file)),
            function("refund", &kit::script(&format!("refund/{file}"))),
            function("refund_calendar", &kit::script("refund/calendar.lua")),
            function("reset", &kit::script("reset.lua")),
            format!("local TELLS_HELD, QUOTA_SIZE = {tells_held}, {quota_size}\n"),
            "local take_worlds = { take, general_take".to_owned(),
            if worlds == 3 { ", take }\n" } else { " }\n" }.to_owned(),
            include_str!("play.lua").to_owned(),
        ];
        Play {
            script: redis::Script::new(&text.concat()),
        }
    }

    /// What differed between the worlds, or `None`.
    pub(super) fn difference(&self, play: &Play, arguments: &[Vec<u8>]) -> Option<String> {
        let mut call = play.script.prepare_invoke();
        for argument in arguments {
            call.arg(argument);
        }
        let answer: Result<String, _> = call.invoke(&mut *self.connection.borrow_mut());
        let text = answer.unwrap_or_else(|error| error.to_string());
        (!text.is_empty()).then_some(text)
    }

    /// The same on a server that has no memory for a first write.
    pub(super) fn difference_out_of_memory(&self, play: &Play, of: &[Vec<u8>]) -> Option<String> {
        self.set_max_memory("1");
        let difference = self.difference(play, of);
        self.set_max_memory("0");
        difference
    }

    fn set_max_memory(&self, bytes: &str) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes);
        let mut connection = self.connection.borrow_mut();
        set.exec(&mut connection).expect("is set");
    }
}

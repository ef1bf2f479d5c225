//! The usual case of each script of takes, and its core: equal answers, and equal states.
//!
//! A call whose first byte says that a key is named twice skips the usual case. So the same calls
//! are played with it and without it, and in any mixture.

mod conditions;
mod directed;
mod history;
mod months;
mod play;

use kit::Redis;
use proptest::prelude::*;
use tidegate::Algorithm;

use history::history;
use play::{Player, file};

kit::for_each_algorithm!(answers_alike);

fn answers_alike(algorithm: Algorithm) {
    let server = Redis::start();
    let player = Player::new(&server, algorithm);
    let play = player.play_of(&kit::script(&file(algorithm)), 3);
    for history in directed::sound(algorithm) {
        let difference = player.difference(&play, &history.arguments(algorithm));
        assert_eq!(difference, None, "{history:?}");
    }
    let histories = std::env::var("TIDEGATE_HISTORIES");
    let histories = histories.map_or(500, |number| number.parse().expect("a number"));
    proptest!(kit::random::config(histories), |(history in history())| {
        let difference = player.difference(&play, &history.arguments(algorithm));
        prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
    });
}

//! The scripts of the folders `lua/`, as the crates send them.

use std::collections::HashMap;
use std::fs;

/// The text of a script, such as `gcra.lua`, with its includes and constants.
pub fn script(file: &str) -> String {
    expand("lua", file, &constants())
}

/// The text of a script of the limiter that has a deadline, such as `limiter/acquire.lua`: its last
/// arguments are that, in microseconds, and the number of its call.
pub fn script_of_limiter(file: &str) -> String {
    let source = expand("crates/redisson/lua", file, &HashMap::new());
    format!(
        "local id, deadline, time = table.remove(ARGV) + 0, table.remove(ARGV) + 0, redis.call('TIME')\n\
         local server_now = time[1] * 1000000 + time[2]\n\
         if server_now > deadline then return {{ id, redis.error_reply('LATE'), server_now }} end\n\
         local function script()\n{source}end\n\
         return {{ id, script(), server_now }}\n"
    )
}

fn expand(folder: &str, file: &str, constants: &HashMap<String, String>) -> String {
    let is_part = |of: char| of.is_ascii_alphanumeric() || of == '_';
    let mut whole = String::new();
    for line in read(folder, file).lines() {
        let code = line.trim_start();
        if let Some(name) = code.strip_prefix("-- include: ") {
            whole += &expand(folder, &format!("include/{name}.lua"), constants);
            continue;
        }
        for word in line.split_inclusive(|of| !is_part(of)) {
            let name = word.trim_end_matches(|of| !is_part(of));
            let text = constants.get(name).filter(|_| !code.starts_with("--"));
            whole += text.map_or(name, String::as_str);
            whole += &word[name.len()..];
        }
        whole.push('\n');
    }
    whole
}

/// The list that the scripts share.
fn constants() -> HashMap<String, String> {
    let list = read("lua", "constants.rs");
    let pairs = list.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("pub(crate) const ")?.split_once(": ")?;
        let (_, text) = value.strip_suffix(';')?.split_once(" = ")?;
        Some((name.to_owned(), text.to_owned()))
    });
    pairs.collect()
}

fn read(folder: &str, file: &str) -> String {
    let path = crate::root().join(folder).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use crate::config::ConfigError;
use crate::rule::ContentHash;

/// The largest file that is read: many times what 10,000 rules need.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// What a file contained when it was read.
#[derive(Debug)]
pub(super) struct FileContent {
    pub(super) text: String,
    pub(super) hash: ContentHash,
    /// The time of the last write before the text was read. `None` where files do not have it.
    pub(super) modified: Option<SystemTime>,
}

impl FileContent {
    /// Reads the whole file. Blocks for as long as the file system takes.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        read(path).map_err(|error| ConfigError::unreadable(path, error))
    }
}

fn read(path: &Path) -> io::Result<FileContent> {
    // Opening a named pipe would wait for its writer. What is there may change before it is opened.
    check(&fs::metadata(path)?)?;
    let file = open(path)?;
    let metadata = file.metadata()?;
    check(&metadata)?;
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8"))?;
    Ok(FileContent {
        hash: ContentHash::of(&text),
        text,
        modified: metadata.modified().ok(),
    })
}

/// Opens a file without waiting for a writer, should it be a named pipe. Of regular files, opening
/// and reading is the same as ever.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    const NONBLOCK: i32 = if cfg!(target_os = "linux") {
        0o4000
    } else {
        0x4
    };
    File::options().read(true).custom_flags(NONBLOCK).open(path)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => check_length(metadata.len()),
        false => Err(io::Error::other("not a regular file")),
    }
}

fn check_length(length: u64) -> io::Result<()> {
    match length <= MAX_FILE {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "more than 16 MiB",
        )),
    }
}

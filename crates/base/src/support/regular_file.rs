use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// The text of a file of at most so many bytes, shown as this, and what was known of the file when
/// it was opened. Links are followed. It blocks for as long as the file system takes.
///
/// # Errors
///
/// If it is no regular file, it is not opened (a device may have no end, and a named pipe no
/// writer); and if it is longer, not valid UTF-8, or cannot be read.
pub fn read(path: &Path, (max, shown): (u64, &str)) -> io::Result<(String, Metadata)> {
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {shown}"));
    let check_length = |length: u64| (length <= max).then_some(()).ok_or_else(too_long);
    let check = |metadata: &Metadata| match metadata.is_file() {
        true => check_length(metadata.len()),
        false => Err(io::Error::other("not a regular file")),
    };
    // Opening a named pipe would wait for its writer. What is there may change before it is opened.
    check(&fs::metadata(path)?)?;
    let file = open(path)?;
    let metadata = file.metadata()?;
    check(&metadata)?;
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    file.take(max + 1).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8"))?;
    Ok((text, metadata))
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

//! A table as Markdown.

pub fn print(head: &[&str], rows: &[Vec<String>]) {
    println!("| {} |", head.join(" | "));
    let lines = (0..head.len()).map(|column| if column == 0 { "---" } else { "---:" });
    println!("| {} |", lines.collect::<Vec<_>>().join(" | "));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

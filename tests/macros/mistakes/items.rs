//! What the attribute may stand on.

use tidegate::layer::Refused;
use tidegate::limited;

#[limited("export", key = 1)]
fn blocking() -> Result<(), Refused> {
    Ok(())
}

struct Reports;

#[limited("export", key = 1)]
impl Reports {
    fn blocking(&self) {}
}

#[limited("export", key = 1)]
impl Reports {
    #[limited("report", key = 1)]
    fn also_blocking(&self) {}

    async fn export(&self) -> Result<(), Refused> {
        Ok(())
    }
}

#[limited("export", key = 1)]
impl Reports {
    #[limited("report")]
    async fn no_key(&self) -> Result<(), Refused> {
        Ok(())
    }
}

#[limited("export", key = 1)]
struct Value;

fn main() {}

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit};

/// A metric that is published: its name, and what it counts or measures.
#[derive(Debug)]
pub(crate) struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

#[derive(Debug)]
enum Kind {
    Counter,
    Gauge,
    /// The unit is seconds.
    Histogram,
}

const METADATA: Metadata<'static> =
    Metadata::new("tidegate", Level::INFO, Some("tidegate::metrics"));

impl Metric {
    pub(crate) const fn counter(name: &'static str, help: &'static str) -> Self {
        let kind = Kind::Counter;
        Self { name, kind, help }
    }

    pub(crate) const fn gauge(name: &'static str, help: &'static str) -> Self {
        let kind = Kind::Gauge;
        Self { name, kind, help }
    }

    pub(crate) const fn histogram(name: &'static str, help: &'static str) -> Self {
        let kind = Kind::Histogram;
        Self { name, kind, help }
    }

    /// Tells a recorder the unit and the meaning. Recorders keep the first that they are told.
    pub(crate) fn describe(&self, recorder: &dyn Recorder) {
        let (name, help) = (KeyName::from_const_str(self.name), self.help.into());
        match self.kind {
            Kind::Counter => recorder.describe_counter(name, Some(Unit::Count), help),
            Kind::Gauge => recorder.describe_gauge(name, Some(Unit::Count), help),
            Kind::Histogram => recorder.describe_histogram(name, Some(Unit::Seconds), help),
        }
    }

    /// Sets the counter with these labels to a number that never falls.
    pub(crate) fn count(&self, recorder: &dyn Recorder, labels: Vec<Label>, number: u64) {
        let counter = recorder.register_counter(&self.key(labels), &METADATA);
        counter.absolute(number);
    }

    /// Sets the gauge with these labels.
    pub(crate) fn set(&self, recorder: &dyn Recorder, labels: Vec<Label>, value: f64) {
        let gauge = recorder.register_gauge(&self.key(labels), &METADATA);
        gauge.set(value);
    }

    /// The histogram with these labels. It exists from now on, also if nothing is recorded.
    pub(crate) fn histogram_of(
        &self,
        recorder: &dyn Recorder,
        labels: Vec<Label>,
    ) -> ::metrics::Histogram {
        recorder.register_histogram(&self.key(labels), &METADATA)
    }

    fn key(&self, labels: Vec<Label>) -> Key {
        Key::from_parts(KeyName::from_const_str(self.name), labels)
    }
}

//! The text that Prometheus reads, in its own format and in `OpenMetrics`.

use std::fmt::{Display, Write};

use muser_engine::service::HistogramSnapshot;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 0.0.4 of Prometheus' own.
    Prometheus,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl Format {
    /// How replies name it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A page in the making. Each family is written once.
pub struct Page {
    format: Format,
    text: String,
}

impl Page {
    /// An empty page.
    pub fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// Writes counters of one name; `_total` is added to it.
    pub fn counter<'a, L, V>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (L, u64)>)
    where
        L: AsRef<[(&'a str, V)]>,
        V: Display,
    {
        let total = format!("{name}_total");
        // OpenMetrics takes the suffix for part of the sample, Prometheus for part of the name.
        self.head(if self.format == Format::OpenMetrics { name } else { &total }, "counter", help);
        samples.into_iter().for_each(|(labels, value)| self.sample(&total, labels.as_ref(), value));
    }

    /// Writes gauges of one name.
    pub fn gauge<'a, L, V>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (L, u64)>)
    where
        L: AsRef<[(&'a str, V)]>,
        V: Display,
    {
        self.head(name, "gauge", help);
        samples.into_iter().for_each(|(labels, value)| self.sample(name, labels.as_ref(), value));
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &HistogramSnapshot) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.bounds.iter().zip(&histogram.cumulative) {
            self.sample(&bucket, &[("le", format!("{bound:?}"))], *count);
        }
        self.sample(&bucket, &[("le", "+Inf")], histogram.count);
        self.sample::<&str>(&format!("{name}_sum"), &[], histogram.sum);
        self.sample::<&str>(&format!("{name}_count"), &[], histogram.count);
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample<V: Display>(&mut self, name: &str, labels: &[(&str, V)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, of)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let of = of.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{before}{label}=\"{of}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.counter("muser_things", "Things.", [([("kind", "a\"b\\c\nd")], 3)]);
        page.gauge("muser_level", "A level.", [([("", ""); 0], 7)]);
        let histogram = HistogramSnapshot { bounds: &[0.5, 1.0], cumulative: vec![1, 3], count: 4, sum: 6.25 };
        page.histogram("muser_wait_seconds", "Waits.", &histogram);
        page.finish()
    }

    #[test]
    fn labels_are_escaped_and_buckets_end_with_all() {
        let expected = "\
# HELP muser_things_total Things.
# TYPE muser_things_total counter
muser_things_total{kind=\"a\\\"b\\\\c\\nd\"} 3
# HELP muser_level A level.
# TYPE muser_level gauge
muser_level 7
# HELP muser_wait_seconds Waits.
# TYPE muser_wait_seconds histogram
muser_wait_seconds_bucket{le=\"0.5\"} 1
muser_wait_seconds_bucket{le=\"1.0\"} 3
muser_wait_seconds_bucket{le=\"+Inf\"} 4
muser_wait_seconds_sum 6.25
muser_wait_seconds_count 4
";
        assert_eq!(page(Format::Prometheus), expected);
    }

    #[test]
    fn open_metrics_names_counters_without_their_suffix_and_says_where_the_page_ends() {
        let page = page(Format::OpenMetrics);
        assert!(page.contains("# TYPE muser_things counter\nmuser_things_total{"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}

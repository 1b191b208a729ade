//! Dates as templates ask for them.

use std::fmt::Write as _;

/// A moment of local time, as the caller's clock shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// Year of the Gregorian calendar.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 60.
    pub second: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const DAYS_BEFORE_MONTH: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

impl DateTime {
    /// The moment `unix_seconds` after 1970-01-01 00:00 UTC, on a clock `offset_seconds` east of UTC.
    #[must_use]
    pub fn from_unix(unix_seconds: i64, offset_seconds: i32) -> DateTime {
        // Beyond these the year leaves `i32`; no clock shows such a time.
        const LIMIT: i64 = 1 << 55;
        let local = unix_seconds.clamp(-LIMIT, LIMIT) + i64::from(offset_seconds);
        let (days, seconds) = (local.div_euclid(86_400), local.rem_euclid(86_400) as u32);
        // Days are counted from 0000-03-01, so that the leap day ends a year and 400 years are one period.
        let since_march = days + 719_468;
        let (era, day_of_era) = (since_march.div_euclid(146_097), since_march.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        let year = (year_of_era + era * 400 + i64::from(month <= 2)) as i32;
        DateTime { year, month, day, hour: seconds / 3600, minute: seconds / 60 % 60, second: seconds % 60 }
    }

    fn is_leap(self) -> bool {
        self.year.rem_euclid(4) == 0 && (self.year.rem_euclid(100) != 0 || self.year.rem_euclid(400) == 0)
    }

    /// Day of the year, from 1.
    fn ordinal(self) -> u32 {
        let month = self.month.clamp(1, 12);
        DAYS_BEFORE_MONTH[month as usize - 1] + self.day + u32::from(month > 2 && self.is_leap())
    }

    /// 0 is Sunday.
    fn weekday(self) -> usize {
        let before = i64::from(self.year) - 1;
        let days = before * 365 + before.div_euclid(4) - before.div_euclid(100)
            + before.div_euclid(400)
            + i64::from(self.ordinal());
        days.rem_euclid(7) as usize
    }

    /// Formats as C's `strftime` does in the C locale.
    ///
    /// Knows `%a %A %b %B %c %d %D %e %F %H %I %j %m %M %n %p %S %t %T %w %y %Y %%` and the flag `-` (no padding), which
    /// are the ones templates use.
    ///
    /// # Errors
    ///
    /// The first conversion that isn't one of these.
    pub fn strftime(self, format: &str) -> Result<String, String> {
        let mut out = String::with_capacity(format.len() + 16);
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut conversion = chars.next();
            let padded = conversion != Some('-');
            if !padded {
                conversion = chars.next();
            }
            let Some(conversion) = conversion else { return Err("%".to_owned()) };
            self.convert(conversion, padded, &mut out)?;
        }
        Ok(out)
    }

    fn convert(self, conversion: char, padded: bool, out: &mut String) -> Result<(), String> {
        let month = MONTHS[self.month.clamp(1, 12) as usize - 1];
        let weekday = WEEKDAYS[self.weekday()];
        let hour12 = (self.hour + 11) % 12 + 1;
        let mut number = |value: i64, width: usize| {
            let width = if padded { width } else { 0 };
            let _ = write!(out, "{value:0width$}");
        };
        match conversion {
            'd' => number(self.day.into(), 2),
            'H' => number(self.hour.into(), 2),
            'I' => number(hour12.into(), 2),
            'j' => number(self.ordinal().into(), 3),
            'm' => number(self.month.into(), 2),
            'M' => number(self.minute.into(), 2),
            'S' => number(self.second.into(), 2),
            'w' => number(self.weekday() as i64, 1),
            'y' => number(self.year.rem_euclid(100).into(), 2),
            'Y' => number(self.year.into(), 4),
            'e' => {
                let width = if padded { 2 } else { 0 };
                let _ = write!(out, "{:width$}", self.day);
            }
            'a' => out.push_str(&weekday[..3]),
            'A' => out.push_str(weekday),
            'b' | 'h' => out.push_str(&month[..3]),
            'B' => out.push_str(month),
            'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            'F' => out.push_str(&self.strftime("%Y-%m-%d")?),
            'D' => out.push_str(&self.strftime("%m/%d/%y")?),
            'T' => out.push_str(&self.strftime("%H:%M:%S")?),
            'R' => out.push_str(&self.strftime("%H:%M")?),
            'c' => out.push_str(&self.strftime("%a %b %e %H:%M:%S %Y")?),
            other => return Err(format!("%{other}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: DateTime = DateTime { year: 2024, month: 7, day: 4, hour: 15, minute: 5, second: 9 };

    #[test]
    fn formats_are_those_of_c() {
        // Expected values from Python's `datetime.strftime`.
        for (format, expected) in [
            ("%d %b %Y", "04 Jul 2024"),
            ("%Y-%m-%d", "2024-07-04"),
            ("%A, %B %-d, %Y", "Thursday, July 4, 2024"),
            ("%a %j %w %y", "Thu 186 4 24"),
            ("%I:%M %p %H:%M:%S", "03:05 PM 15:05:09"),
            ("%e|%F|%T|%D|%c|100%%", " 4|2024-07-04|15:05:09|07/04/24|Thu Jul  4 15:05:09 2024|100%"),
            ("é %d", "é 04"),
        ] {
            assert_eq!(MOMENT.strftime(format).unwrap(), expected, "{format}");
        }
    }

    #[test]
    fn an_unknown_conversion_is_named() {
        assert_eq!(MOMENT.strftime("%d %Q"), Err("%Q".to_owned()));
        assert_eq!(MOMENT.strftime("%"), Err("%".to_owned()));
    }

    #[test]
    fn unix_time_becomes_the_calendar_s_day() {
        for (unix, offset, expected) in [
            (0, 0, "1970-01-01 00:00:00 Thu 001"),
            (951_782_400, 0, "2000-02-29 00:00:00 Tue 060"),
            (1_735_689_599, 0, "2024-12-31 23:59:59 Tue 366"),
            (1_735_689_599, 3600, "2025-01-01 00:59:59 Wed 001"),
            (-1, 0, "1969-12-31 23:59:59 Wed 365"),
            (4_107_542_400, 0, "2100-03-01 00:00:00 Mon 060"),
        ] {
            assert_eq!(DateTime::from_unix(unix, offset).strftime("%F %T %a %j").unwrap(), expected);
        }
    }
}

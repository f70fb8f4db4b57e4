//! The wall clock, for reports and logs.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "reports and logs name the time")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time as `2026-11-20 09:40:20Z`.
pub(crate) fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The Gregorian calendar repeats every 400 years of 146,097 days; years are counted from March
    // so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (year, month + 3),
        _ => (year + 1, month - 9),
    };
    let year = year + era * 400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(utc(seconds * 1000), text);
        }
    }
}

//! Validation of cron schedules. The CronJob controller computes the run times.

/// Fields in order, with bounds and the names that can replace numbers.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Returns the error in a schedule, if there is one.
pub(super) fn problem(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    let zoned = schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=");
    let schedule = schedule.split_once(' ').filter(|_| zoned).map_or(schedule, |(_, rest)| rest.trim());
    if let Some(name) = schedule.strip_prefix('@') {
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
        let every =
            name.strip_prefix("every ").is_some_and(|it| it.starts_with(|it: char| it.is_ascii_digit()));
        return (!known.contains(&name) && !every).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<_> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let problems = fields
        .iter()
        .zip(FIELDS)
        .filter_map(|(field, bounds)| field.split(',').find_map(|part| part_problem(part, bounds)));
    problems.into_iter().next()
}

fn part_problem(part: &str, (low, high, names): (u32, u32, &[&str])) -> Option<String> {
    let (range, step) = part.split_once('/').map_or((part, None), |it| (it.0, Some(it.1)));
    let number = |text: &str| {
        let lower = text.to_ascii_lowercase();
        match names.iter().position(|name| *name == lower) {
            Some(index) => Ok(low + u32::try_from(index).unwrap_or_default()),
            None => text.parse::<u32>().map_err(|_| {
                format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
            }),
        }
    };
    let (start, end) = match range {
        "*" | "?" => (Ok(low), Ok(high)),
        _ => match range.split_once('-') {
            Some((start, end)) => (number(start), number(end)),
            None => (number(range), if step.is_some() { Ok(high) } else { number(range) }),
        },
    };
    let (start, end) = match (start, end) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(why), _) | (_, Err(why)) => return Some(why),
    };
    match step.map(number) {
        Some(Err(why)) => return Some(why),
        Some(Ok(0)) => return Some(format!("step of range should be a positive number: {part}")),
        _ => {}
    }
    if start < low {
        return Some(format!("beginning of range ({start}) below minimum ({low}): {part}"));
    }
    if end > high {
        return Some(format!("end of range ({end}) above maximum ({high}): {part}"));
    }
    (start > end).then(|| format!("beginning of range ({start}) beyond end of range ({end}): {part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_schedules_parse_like_upstream() {
        for (schedule, expected) in [
            ("*/5 * * * *", None),
            ("0 0 1 jan mon-fri", None),
            ("@daily", None),
            ("@every 1h", None),
            ("* * * *", Some("expected exactly 5 fields, found 4: [* * * *]")),
            ("60 * * * *", Some("end of range (60) above maximum (59): 60")),
            ("@never", Some("unrecognized descriptor: @never")),
            ("x * * * *", Some("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax")),
        ] {
            assert_eq!(problem(schedule).as_deref(), expected, "{schedule}");
        }
    }
}

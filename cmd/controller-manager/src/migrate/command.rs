//! Finds kube-controller-manager in the command of a container. Pure.
//!
//! It understands a command that names the program, directly or below a wrapper, and a shell line that contains one
//! command of the program. Whatever it does not understand is `Hidden`, never absent: a check that overlooks a program
//! would let two processes act on the same objects.

use std::collections::BTreeMap;

use super::flags::UPSTREAM;

/// The program of a container, as far as this module is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Another program, or one that the container does not show.
    Other,
    /// kube-controller-manager, with arguments that are not visible.
    Hidden,
    /// kube-controller-manager with these arguments.
    Visible(Vec<String>),
}

/// Variables of a container whose values the Pod shows.
pub(super) type Variables = BTreeMap<String, String>;

/// Words of a shell that a command follows.
const BEFORE_COMMAND: [&str; 15] =
    ["&&", "||", "|", "&", ";", "(", "{", "!", "then", "else", "do", "exec", "nohup", "time", "env"];
/// Words of a shell that end a command.
const AFTER_COMMAND: [&str; 7] = ["&&", "||", "|", "&", ";", ")", "}"];

/// Returns what a container with these words runs: its command and its arguments.
pub(super) fn command(words: &[String], variables: &Variables) -> Command {
    // Kubernetes replaces `$(NAME)` before it starts the container.
    let words: Vec<String> = words.iter().map(|word| expanded(word, "$(", ")", variables)).collect();
    let mut lines = words.iter().filter(|word| word.contains(char::is_whitespace));
    if let Some(line) = lines.find(|line| mentions_program(line)) {
        return in_shell(line, variables);
    }
    let Some(program) = words.iter().position(|word| is_program(word)) else { return Command::Other };
    let arguments = &words[program + 1..];
    // Elsewhere the name can be the value of a flag. A variable can contain any number of flags.
    let is_started = program <= 1 || words[program].contains("/bin/");
    match is_started && !arguments.iter().any(|word| word.starts_with("$(")) {
        true => Command::Visible(arguments.to_vec()),
        false => Command::Hidden,
    }
}

/// Returns whether a word is the program, with or without its path.
fn is_program(word: &str) -> bool {
    !word.starts_with('-') && word.rsplit('/').next() == Some(UPSTREAM)
}

fn mentions_program(line: &str) -> bool {
    line.split(|byte: char| byte.is_whitespace() || "\"';&|()".contains(byte)).any(is_program)
}

/// Returns the command in a script.
fn in_shell(script: &str, variables: &Variables) -> Command {
    let script = script.replace("\\\n", " ");
    let mut lines = script.lines().filter(|line| mentions_program(line));
    let (Some(line), None) = (lines.next(), lines.next()) else { return Command::Hidden };
    let Some(words) = shlex::split(line) else { return Command::Hidden };
    let is_start = |index: usize| index == 0 || starts_command(&words[index - 1]);
    let mut starts = (0..words.len()).filter(|index| is_start(*index) && is_program(&words[*index]));
    match (starts.next(), starts.next()) {
        (Some(program), None) => arguments(&words[program + 1..], variables),
        _ => Command::Hidden,
    }
}

/// Returns whether a command follows this word: an operator, a keyword, an assignment, or the end of a command.
fn starts_command(word: &str) -> bool {
    let is_assignment = || {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|byte| byte.is_ascii_alphanumeric() || byte == '_')
    };
    BEFORE_COMMAND.contains(&word) || word.ends_with(';') || is_assignment()
}

/// Returns the arguments up to the end of the command, without redirections.
fn arguments(words: &[String], variables: &Variables) -> Command {
    let mut arguments = Vec::new();
    let mut is_file = false;
    for word in words.iter().take_while(|word| !AFTER_COMMAND.contains(&word.as_str())) {
        let text = word.trim_end_matches(';');
        match redirection(text) {
            _ if is_file => is_file = false,
            Some(file) => is_file = file.is_empty(),
            None => {
                let argument = shell_expanded(text, variables);
                // A variable can contain any number of flags.
                if argument.starts_with(['$', '`']) {
                    return Command::Hidden;
                }
                match text.starts_with('$') {
                    true => arguments.extend(argument.split_whitespace().map(str::to_owned)),
                    false => arguments.push(argument),
                }
            }
        }
        if text != word {
            break;
        }
    }
    Command::Visible(arguments)
}

/// Returns the file in a redirection such as `2>file`; it is empty if the next word is the file.
fn redirection(word: &str) -> Option<&str> {
    let operator = word.trim_start_matches(|byte: char| byte.is_ascii_digit() || byte == '&');
    operator.starts_with(['<', '>']).then(|| operator.trim_start_matches(['<', '>', '&']))
}

/// Replaces `${NAME}`, and a `$NAME` at the end of a word or in front of a comma.
fn shell_expanded(word: &str, variables: &Variables) -> String {
    let word = expanded(word, "${", "}", variables);
    let mut parts = word.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_').unwrap_or(part.len());
        match variables.get(&part[..end]) {
            Some(value) => text.extend([value, &part[end..]]),
            None => text.extend(["$", part]),
        }
    }
    text
}

/// Replaces names between these marks by their values. An unknown name stays.
fn expanded(word: &str, open: &str, close: &str, variables: &Variables) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once(open) {
        text.push_str(before);
        rest = match after.split_once(close) {
            Some((name, after)) if variables.contains_key(name) => {
                text.push_str(&variables[name]);
                after
            }
            _ => {
                text.push_str(open);
                after
            }
        };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/usr/local/bin/kube-controller-manager";

    fn run(words: &[&str]) -> Command {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let variables = [("LIST", "*,-job"), ("FLAGS", "--v=2 --controllers=job")];
        command(&words, &variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    fn shell(line: &str) -> Command {
        run(&["/bin/sh", "-c", line])
    }

    fn visible(words: &[&str]) -> Command {
        Command::Visible(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn program_is_found_directly_and_below_a_wrapper() {
        assert_eq!(run(&[PROGRAM, "--controllers=job"]), visible(&["--controllers=job"]));
        assert_eq!(run(&["/hyperkube", "kube-controller-manager", "--v=2"]), visible(&["--v=2"]));
        assert_eq!(run(&["/go-runner", "--log-file=/x", PROGRAM, "--v=2"]), visible(&["--v=2"]));
        assert_eq!(run(&["/coredns", "--conf=/etc/kube-controller-manager"]), Command::Other);
        assert_eq!(run(&["/bin/sh", "-c", "exec kube-controller-manager-proxy"]), Command::Other);
    }

    #[test]
    fn shell_line_shows_the_arguments_of_the_program() {
        let list = || visible(&["--controllers=*,-job"]);
        for line in [
            "exec kube-controller-manager --controllers='*,-job'",
            "kube-controller-manager '--controllers=*,-job' >/log 2>&1; echo done",
            "mkfifo /p; (tee </p) & exec /bin/kube-controller-manager \"--controllers=*,-job\" > /p 2> /q",
            "cd / && A=1 kube-controller-manager --controllers=*,-job; echo done",
            "set -e\nexec kube-controller-manager \\\n  --controllers=*,-job\n",
            "kube-controller-manager --controllers=$LIST || exit 1",
            "kube-controller-manager \"--controllers=${LIST}\"",
        ] {
            assert_eq!(shell(line), list(), "{line}");
        }
        assert_eq!(run(&[PROGRAM, "--controllers=$(LIST)"]), list());
        assert_eq!(shell("kube-controller-manager $FLAGS"), visible(&["--v=2", "--controllers=job"]));
    }

    #[test]
    fn line_that_is_not_understood_hides_the_arguments() {
        for line in [
            "exec kube-controller-manager $UNKNOWN",
            "exec kube-controller-manager `flags`",
            "exec kube-controller-manager $(cat /flags)",
            "exec kube-controller-manager --controllers='*",
            "tini -- kube-controller-manager --v=2",
            "if x; then kube-controller-manager --v=1; else kube-controller-manager --v=2; fi",
            "kube-controller-manager --v=1\nkube-controller-manager --v=2",
            "cat /etc/kube-controller-manager",
        ] {
            assert_eq!(shell(line), Command::Hidden, "{line}");
        }
        assert_eq!(run(&[PROGRAM, "$(UNKNOWN)", "--controllers=*,-job"]), Command::Hidden);
        assert_eq!(run(&["/watch", "--target", "kube-controller-manager"]), Command::Hidden);
        // The entry stays unknown, which is a separate step.
        assert_eq!(run(&[PROGRAM, "--controllers=$(UNKNOWN)"]), visible(&["--controllers=$(UNKNOWN)"]));
        assert_eq!(
            shell("kube-controller-manager --controllers=$UNKNOWN"),
            visible(&["--controllers=$UNKNOWN"])
        );
    }
}
